// Package workload tells who a process is, as labels of its profiles: the service, its version, where it was deployed. It
// knows what the process says of itself in its environment and its command line, and reads nothing else of either: of the
// environment only the variables of OpenTelemetry, never a secret, and never a process ID, which would make every restart
// a series of its own.
package workload
