package durable

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"brine/internal/call/client"
	"brine/internal/net/event"
	"brine/internal/py/value"
	"brine/test/daemontest"
)

// A speaker is another process of this program on a master's machine, which commands that master.
// It reads orders and answers each; both are lines of JSON.
const speakerEnv = "BRINE_TEST_SPEAKER"

// order is a request to a speaker: publish a script, or return the results of a job.
type order struct {
	JID    string `json:"jid"`
	Script string `json:"script,omitempty"`
}

type answer struct {
	Err   string            `json:"err,omitempty"`
	Shown map[string]string `json:"shown,omitempty"`
}

// speak runs the speaker; the environment contains the directory of its master, followed by the
// address.
func speak(in io.Reader, out io.Writer) error {
	dir, host, _ := strings.Cut(os.Getenv(speakerEnv), " ")
	var o event.MasterOptions
	o.IPCMode, o.SockDir = "ipc", dir+"/var/run/salt/master"
	log := slog.New(slog.DiscardHandler)
	orders, answers := json.NewDecoder(in), json.NewEncoder(out)
	b := &boss{}
	for {
		var ord order
		if err := orders.Decode(&ord); err != nil {
			return err
		}
		var a answer
		err := func() error {
			if b.c == nil { // the key exists once the master has run
				local, err := client.NewLocal(client.Place{Interface: host, RetPort: daemontest.RetPort, Sockets: o.Sockets(),
					CacheDir: dir + "/var/cache/salt/master"}, "root", log)
				if err != nil {
					return err
				}
				b.c = client.New(client.Options{Timeout: 5 * time.Second, GatherJobTimeout: 2 * time.Second}, "", local, local, log)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			if ord.Script != "" {
				return b.shell(ctx, ord.JID, "*", ord.Script, value.DictOf("expire", 3600))
			}
			rets, err := b.lookup(ctx, ord.JID)
			a.Shown = map[string]string{}
			for id, ret := range rets {
				a.Shown[id] = value.Str(ret)
			}
			return err
		}()
		if err != nil {
			a.Err = err.Error()
		}
		if err := answers.Encode(a); err != nil {
			return err
		}
	}
}
