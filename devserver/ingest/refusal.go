package ingest

import (
	"fmt"

	"connectrpc.com/connect"
)

// Reason is why a push was refused. The values are few and fit a metric label.
type Reason string

// The reasons, each with the code that the server answers.
const (
	// ReasonUndecodable: not gzip nor pprof, or empty. Unknown, which looks
	// transient and is not.
	ReasonUndecodable Reason = "undecodable"
	// ReasonTooLarge: over MaxProfileBytes. Invalid argument.
	ReasonTooLarge Reason = "profile_too_large"
	// ReasonBurst: over MaxBurstBytes. Resource exhausted, which looks transient
	// and is not, for one profile.
	ReasonBurst Reason = "over_burst"
	// The rest are invalid arguments.
	ReasonNoProfiles     Reason = "no_profiles"
	ReasonMissingName    Reason = "missing_name"
	ReasonEmptyService   Reason = "empty_service_name"
	ReasonInvalidLabel   Reason = "invalid_label"
	ReasonDuplicateLabel Reason = "duplicate_label"
	ReasonTooManyLabels  Reason = "too_many_labels"
	ReasonLabelNameLong  Reason = "label_name_too_long"
	ReasonLabelValueLong Reason = "label_value_too_long"
	ReasonSampleLabels   Reason = "too_many_sample_labels"
	ReasonSampleType     Reason = "invalid_sample_type"
	ReasonInvalidUTF8    Reason = "invalid_utf8"
	ReasonTooOld         Reason = "too_old"
	ReasonTooNew         Reason = "too_new"
	ReasonTooManySamples Reason = "too_many_samples"
	ReasonTooManyFrames  Reason = "too_many_frames"
	ReasonTooManySeries  Reason = "too_many_series"
	ReasonMalformed      Reason = "malformed_profile"
)

// Reasons lists every Reason, for a metric that shows each from the start.
func Reasons() []Reason {
	return []Reason{
		ReasonUndecodable, ReasonTooLarge, ReasonBurst, ReasonNoProfiles, ReasonMissingName, ReasonEmptyService, ReasonInvalidLabel,
		ReasonDuplicateLabel, ReasonTooManyLabels, ReasonLabelNameLong, ReasonLabelValueLong, ReasonSampleLabels,
		ReasonSampleType, ReasonInvalidUTF8, ReasonTooOld, ReasonTooNew, ReasonTooManySamples, ReasonTooManyFrames,
		ReasonTooManySeries, ReasonMalformed,
	}
}

// Refusal is the error of a profile that the server does not take.
type Refusal struct {
	Reason  Reason
	Code    connect.Code
	Message string
}

// Error is the message, which names what is wrong and what to do.
func (r *Refusal) Error() string { return r.Message }

func refuse(reason Reason, format string, args ...any) *Refusal {
	code := connect.CodeInvalidArgument
	switch reason {
	case ReasonUndecodable:
		code = connect.CodeUnknown
	case ReasonBurst:
		code = connect.CodeResourceExhausted
	}
	return &Refusal{Reason: reason, Code: code, Message: fmt.Sprintf(format, args...)}
}
