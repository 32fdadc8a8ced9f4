package counters

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"time"

	"brine/internal/host"
)

// Login is a user who is logged in at a terminal.
type Login struct {
	User, Terminal string
	Host           string // remote host, "" for this machine
	PID            int    // of the login
	Since          time.Time
}

// A record of the file utmp begins with a type of 16 bits and the process id
// at 4; then the terminal (32 bytes), an id (4), the user (32) and the host
// (256). The time follows at 340 in two numbers of 32 bits, or at 344 in two
// of 64 where the C library has them.
const (
	userProcess            = 7
	atLine, atUser, atHost = 8, 44, 76
)

// Logins reads /run/utmp, which not all machines have.
func Logins(m *host.Machine) []Login {
	data, err := m.ReadFile("/run/utmp")
	if err != nil {
		return nil
	}
	return parseLogins(data, runtime.GOARCH == "arm64" || runtime.GOARCH == "riscv64")
}

func parseLogins(data []byte, wide bool) []Login {
	size := 384
	if wide {
		size = 400
	}
	var list []Login
	for ; len(data) >= size; data = data[size:] {
		r := data[:size]
		if binary.NativeEndian.Uint16(r) != userProcess {
			continue
		}
		since := time.Unix(int64(int32(binary.NativeEndian.Uint32(r[340:]))), int64(binary.NativeEndian.Uint32(r[344:]))*1000)
		if wide {
			since = time.Unix(int64(binary.NativeEndian.Uint64(r[344:])), int64(binary.NativeEndian.Uint64(r[352:]))*1000)
		}
		list = append(list, Login{
			User: text(r[atUser:atHost]), Terminal: text(r[atLine : atLine+32]), Host: text(r[atHost : atHost+256]),
			PID: int(binary.NativeEndian.Uint32(r[4:])), Since: since,
		})
	}
	return list
}

// text returns the string before the first zero byte.
func text(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(bytes.ToValidUTF8(b, []byte("\ufffd")))
}
