package demo

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"

	"brine/internal/cli/tempfleet"
)

// runConsole runs two masters, each with its web console, and minions that use one master at a
// time, until the user stops it.
func (d *demo) runConsole(ctx context.Context) error {
	fleet := slices.Clone(minions)
	for i := range fleet {
		fleet[i].More = "master_type: failover\n"
	}
	var b [9]byte
	rand.Read(b[:])
	password := hex.EncodeToString(b[:])
	var err error
	d.fleet, err = tempfleet.New(fleet, "", "auto_accept: True\nsharedsecret: "+password+`
external_auth: {sharedsecret: {admin: ['.*', '@runner', '@wheel']}}
netapi_enable_clients: [local, local_async, runner, wheel]
`)
	if err != nil {
		return err
	}
	f := d.fleet
	urls, err := f.AddAPIs()
	if err != nil {
		return err
	}
	if err := f.StartMasters(ctx); err != nil {
		return err
	}
	if err := f.StartMinions(); err != nil {
		return err
	}
	for i, api := range f.APIs {
		if err := api.Start(); err != nil {
			return err
		}
		err := f.Await(ctx, api.Name+" to answer", func() error {
			resp, err := http.Get(urls[i] + "/health")
			if err == nil {
				resp.Body.Close()
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	fmt.Fprintf(d.out, "Two masters with one key, minions alpha, beta and gamma, all below %s\n\n", f.Dir)
	for i, m := range f.Masters {
		fmt.Fprintf(d.out, "  console of %s: %s/console/   (process %d of the master)\n", m.Name, urls[i], m.PID())
	}
	fmt.Fprintf(d.out, "\n  user admin, password %s, system sharedsecret\n\nKill the process of a master to see the minions move. End with Ctrl-C.\n", password)
	<-ctx.Done()
	return nil
}
