package daemon

import (
	"net"
	"os"
)

// manager is a service manager that wants to know how the daemon fares, by
// the protocol of sd_notify(3). The zero manager wants nothing.
type manager struct{ addr string }

// serviceManager returns the manager that started this process, if any, and
// hides it from the programs that jobs start.
func serviceManager() manager {
	m := manager{os.Getenv("NOTIFY_SOCKET")}
	os.Unsetenv("NOTIFY_SOCKET")
	return m
}

// tell reports a change of state. Errors are ignored: the service manager may not listen.
func (m manager) tell(state string) {
	if m.addr == "" {
		return
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: m.addr, Net: "unixgram"})
	if err != nil {
		return
	}
	defer c.Close()
	_, _ = c.Write([]byte(state))
}
