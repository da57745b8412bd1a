// Package query answers Pyroscope's querier.v1.QuerierService from profiles in a Source, as the real server does it, so that
// a page, a dashboard or profilecli cannot tell the two apart: a flame graph is the sum of every profile in the window,
// both ends of a window count, the point of a time line is at the end of its step, and an absent label is an empty one.
//
// A window is at most 24 hours, as in the server. What needs an identity that no profile here has (a profile's UUID, a span,
// a trace) is refused, never answered without the filter.
package query
