package push

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
)

// action is what to do with a profile after an attempt to send it.
type action int

const (
	sent    action = iota
	again          // the server is away or wants less: as often as it takes
	limited        // the server failed, perhaps on this profile: a few times
	halve          // too large
	drop
)

// verdict is what an attempt came to.
type verdict struct {
	action action
	reason Reason        // of drop
	crowd  bool          // of again: the server wants less, which may be its way to refuse a large profile
	after  time.Duration // of again and limited: what the server asked for, 0 if nothing
}

// answer is what came back by HTTP, of which an RPC's error has only a part.
type answer struct {
	status     int // 0: nothing came
	retryAfter string
	text       string // the beginning of a body that is not of the protocol
}

// judge tells what an attempt came to: by the codes of a running Pyroscope, and by the statuses of gateways before one.
func judge(err error, a answer, now time.Time) verdict {
	if err == nil {
		return verdict{action: sent}
	}
	v := verdict{action: again}
	switch code := connect.CodeOf(err); {
	case connect.IsWireError(err):
		v = judgeCode(code, err.Error())
	case a.status == 0:
		if code == connect.CodeInternal { // it could not be encoded
			v = verdict{action: drop, reason: Malformed}
		}
	case a.status == http.StatusOK:
		if code != connect.CodeUnavailable && code != connect.CodeDeadlineExceeded && !errors.Is(err, io.ErrUnexpectedEOF) {
			v = verdict{action: limited} // an answer, and not of the protocol
		}
	default:
		v = judgeStatus(a.status, a.text)
	}
	if v.action == again || v.action == limited {
		v.after = retryAfter(a.retryAfter, now)
	}
	return v
}

func judgeCode(code connect.Code, text string) verdict {
	switch code {
	case connect.CodeUnavailable, connect.CodeDeadlineExceeded, connect.CodeAborted:
		return verdict{action: again}
	case connect.CodeResourceExhausted:
		if saysTooLarge(text) {
			return verdict{action: halve}
		}
		return verdict{action: again, crowd: true}
	case connect.CodeInternal, connect.CodeUnknown, connect.CodeCanceled, connect.CodeDataLoss:
		if strings.Contains(text, "proto:") || strings.Contains(text, "gzip") { // it cannot decode the profile
			return verdict{action: drop, reason: Refused}
		}
		return verdict{action: limited}
	case connect.CodeUnauthenticated, connect.CodePermissionDenied:
		return verdict{action: drop, reason: Unauthorized}
	case connect.CodeInvalidArgument:
		if saysTooLarge(text) {
			return verdict{action: halve}
		}
		if strings.Contains(text, "ingestion window") {
			return verdict{action: drop, reason: Expired}
		}
	}
	return verdict{action: drop, reason: Refused}
}

// judgeStatus judges what a gateway answers that does not speak the protocol.
func judgeStatus(status int, text string) verdict {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return verdict{action: again}
	case http.StatusTooManyRequests:
		return verdict{action: again, crowd: true}
	case http.StatusRequestEntityTooLarge:
		return verdict{action: halve}
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired:
		return verdict{action: drop, reason: Unauthorized}
	case http.StatusUnprocessableEntity:
		if text = strings.ToLower(text); strings.Contains(text, "rate limit") || strings.Contains(text, "too many") {
			return verdict{action: again, crowd: true}
		}
	}
	if status >= http.StatusInternalServerError {
		return verdict{action: limited}
	}
	return verdict{action: drop, reason: Refused}
}

// saysTooLarge knows the words for size: of Pyroscope's limits (pkg/validation/validate.go) and of connect's readers.
func saysTooLarge(text string) bool {
	for _, words := range []string{"exceeds the size limit", "exceeds the samples count limit", "larger than configured max", "max_profile_"} {
		if strings.Contains(text, words) {
			return true
		}
	}
	return false
}

// maxRetryAfter bounds what a server may ask for.
const maxRetryAfter = 5 * time.Minute

// retryAfter reads the header of RFC 9110, section 10.2.3: seconds, or a date.
func retryAfter(header string, now time.Time) time.Duration {
	var d time.Duration
	if seconds, err := strconv.Atoi(strings.TrimSpace(header)); err == nil {
		d = time.Duration(min(seconds, int(maxRetryAfter/time.Second))) * time.Second
	} else if at, err := http.ParseTime(header); err == nil {
		d = at.Sub(now)
	}
	return min(max(d, 0), maxRetryAfter)
}
