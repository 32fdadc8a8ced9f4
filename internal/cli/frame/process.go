package frame

import "os"

// NameProcess gives the process the name of its program, which ps -e, top and
// pgrep -x show. Without it a daemon is called as its file is, brine. Only Linux
// has the file; elsewhere nothing happens.
func NameProcess(program string) {
	_ = os.WriteFile("/proc/self/comm", []byte(program), 0) // a name is not worth an error
}
