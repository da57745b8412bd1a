package push

// Reason says why a profile was dropped. It is a metric label.
type Reason string

// The reasons.
const (
	QueueFull    Reason = "queue_full"   // the oldest made room for a newer one
	Expired      Reason = "expired"      // older than the server takes
	TooLarge     Reason = "too_large"    // larger than the server takes
	Malformed    Reason = "malformed"    // not a profile
	Refused      Reason = "refused"      // the server refused it and always will
	Unauthorized Reason = "unauthorized" // the server refused us: credentials or tenant are wrong
	ServerError  Reason = "server_error" // the server failed on it again and again
	Shutdown     Reason = "shutdown"     // not delivered before the end
)

func reasons() []Reason {
	return []Reason{QueueFull, Expired, TooLarge, Malformed, Refused, Unauthorized, ServerError, Shutdown}
}
