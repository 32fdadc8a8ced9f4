package frame

import "os"

// NameProcess sets the name of the process, shown by ps -e, top and pgrep -x, to its program's.
// Otherwise it would be the file's name, brine. It works on Linux only.
func NameProcess(program string) {
	_ = os.WriteFile("/proc/self/comm", []byte(program), 0) // not worth an error
}
