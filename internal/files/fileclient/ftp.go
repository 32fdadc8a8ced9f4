package fileclient

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"

	"brine/internal/base/log/redact"
	"brine/internal/base/salt"
)

// ftp fetches one file in binary and passive mode.
func (w webServers) ftp(ctx context.Context, u *url.URL, to io.Writer) (err error) {
	defer func() {
		if err != nil {
			err = salt.Errorf(salt.Unavailable, "Could not retrieve %s from FTP server. Exception: %w", redact.Text(u.String()), err)
		}
	}()
	port := u.Port()
	if port == "" {
		port = "21"
	}
	conn, err := w.dialer().DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	s := &ftpSession{text: textproto.NewConn(answers{io.LimitReader(conn, maxAnswers), conn})}
	if err := s.login(u); err != nil {
		return err
	}
	data, err := s.passive(ctx, w.dialer(), u.Hostname())
	if err != nil {
		return err
	}
	defer data.Close()
	stopData := context.AfterFunc(ctx, func() { data.Close() })
	defer stopData()
	if err := s.command(1, "RETR %s", strings.TrimLeft(u.Path, "/")); err != nil {
		return err
	}
	if _, err := io.Copy(to, data); err != nil {
		return err
	}
	data.Close()
	_, _, err = s.text.ReadResponse(2)
	return err
}

// maxAnswers bounds the size of all replies of a server during one fetch, in bytes, without the
// file.
const maxAnswers = 256 << 10

// answers limits how much is read from a connection, since textproto reads lines and replies of any
// length.
type answers struct {
	io.Reader
	io.WriteCloser
}

type ftpSession struct{ text *textproto.Conn }

// command sends a line and expects a reply of a class: 1 begun, 2 done, 3
// continue.
func (s *ftpSession) command(class int, format string, args ...any) error {
	line := fmt.Sprintf(format, args...)
	if strings.ContainsAny(line, "\r\n") {
		return salt.Errorf(salt.Invalid, "the URL holds the end of a line")
	}
	if err := s.text.PrintfLine("%s", line); err != nil {
		return err
	}
	_, _, err := s.text.ReadResponse(class)
	return err
}

func (s *ftpSession) login(u *url.URL) error {
	if _, _, err := s.text.ReadResponse(2); err != nil {
		return err
	}
	user, password := "anonymous", "anonymous@"
	if u.User != nil {
		user = u.User.Username()
		password, _ = u.User.Password()
	}
	if strings.ContainsAny(user, "\r\n") {
		return salt.Errorf(salt.Invalid, "the URL holds the end of a line")
	}
	if err := s.text.PrintfLine("USER %s", user); err != nil {
		return err
	}
	code, text, err := s.text.ReadResponse(0)
	switch {
	case err != nil:
		return err
	case code/100 == 3:
		if err := s.command(2, "PASS %s", password); err != nil {
			return err
		}
	case code/100 != 2:
		return &textproto.Error{Code: code, Msg: text}
	}
	return s.command(2, "TYPE I")
}

// passive opens the data connection, always to the host of the URL: another
// address from the server could be a machine that it must not reach through
// this client.
func (s *ftpSession) passive(ctx context.Context, d *net.Dialer, host string) (net.Conn, error) {
	port, err := s.passivePort()
	if err != nil {
		return nil, err
	}
	return d.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
}

// passivePort requests the port of the data connection with EPSV (RFC 2428) or else PASV (RFC 959).
func (s *ftpSession) passivePort() (int, error) {
	if err := s.text.PrintfLine("EPSV"); err != nil {
		return 0, err
	}
	code, text, err := s.text.ReadResponse(0)
	if err != nil {
		return 0, err
	}
	port := 0
	if code == 229 {
		if parts := strings.Split(text, "|"); len(parts) >= 4 {
			port, _ = strconv.Atoi(parts[3])
		}
	} else {
		if err := s.text.PrintfLine("PASV"); err != nil {
			return 0, err
		}
		if _, text, err = s.text.ReadResponse(227); err != nil {
			return 0, err
		}
		_, nums, _ := strings.Cut(text, "(")
		nums, _, _ = strings.Cut(nums, ")")
		if parts := strings.Split(nums, ","); len(parts) == 6 {
			hi, _ := strconv.Atoi(parts[4])
			lo, _ := strconv.Atoi(parts[5])
			port = hi<<8 | lo
		}
	}
	if port <= 0 || port > 65535 {
		return 0, fmt.Errorf("the server's answer to EPSV or PASV cannot be read: %.200q", text)
	}
	return port, nil
}
