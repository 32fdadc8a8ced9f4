package minion

import (
	"context"
	"time"

	"brine/internal/fileclient"
	"brine/internal/salt"
	"brine/internal/value"
)

// local reports whether files come from this machine instead of a master.
func (m *Minion) local() bool {
	return m.cfg.Options.FileClient == "local" || len(m.cfg.Options.Master) == 0
}

// fileClient returns the files for a job of one master: of that master and no
// other, or of this machine.
func (m *Minion) fileClient(from *connection) *fileclient.Client {
	var src fileclient.Source
	switch {
	case m.files != nil:
		src = localFiles{m}
	case from != nil:
		src = from.client
	}
	return fileclient.New(src, m.fileOptions(), m.log)
}

func (m *Minion) fileOptions() fileclient.Options {
	o := m.cfg.Opts
	return fileclient.Options{
		CacheDir: m.cfg.CacheDir, HashType: m.cfg.Handshake.HashType,
		Web: fileclient.WebOptions{
			ConnectTimeout: seconds(o.At("http_connect_timeout")), RequestTimeout: seconds(o.At("http_request_timeout")),
			CABundle: o.Str("ca_bundle"), UserAgent: o.Str("user_agent"),
		},
	}
}

// seconds reads an option that is a number of seconds; 0 if it is none.
func seconds(v any) time.Duration {
	switch x := v.(type) {
	case int64:
		return time.Duration(x) * time.Second
	case float64:
		return time.Duration(x * float64(time.Second))
	}
	return 0
}

// localFiles answers as a master would, for a minion with file_client: local.
type localFiles struct{ m *Minion }

// Request implements fileclient.Source.
func (l localFiles) Request(ctx context.Context, load *value.Dict) (any, error) {
	switch load.Str("cmd") {
	case "_master_tops":
		return value.NewDict(0), nil
	case "_master_opts":
		return l.m.cfg.Opts, nil
	case "_file_recv":
		return nil, salt.Errorf(salt.Unavailable, "there is no master to push a file to")
	}
	return l.m.files.Request(ctx, load)
}
