// Package symbols asks a symbolizer service for the functions, files and lines of frames. It tells the service first which
// files and code objects the frames are of, uploads what it lacks and nothing else, and remembers the answers.
//
// A service that is down, slow or new to a file never costs a frame, nor more than a stated time: such a frame comes back
// with what is known without the service, and is asked about again the next time.
package symbols
