package ha

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"time"

	"brine/internal/cli/daemon"
	"brine/internal/daemons/config"
	"brine/internal/daemons/minion"
	"brine/internal/net/crypt"
	"brine/internal/py/value"
)

// ofMinion compares the masters of a minion from the minion's side: it signs in to each with the
// minion's key, which must be accepted, and queries what a minion may read.
func ofMinion(ctx context.Context, path string, log *slog.Logger) ([]*facts, error) {
	tree, err := config.Load(path, config.MinionKind, log)
	if err != nil {
		return nil, err
	}
	conf, err := config.NewMinion(tree, config.ThisMachine(), false, log)
	if err != nil {
		return nil, err
	}
	mc, err := daemon.MinionConfig(conf, tree, log)
	if err != nil {
		return nil, err
	}
	mc.LateGrains = true
	mc.Options.MasterType, mc.Options.MasterTries, mc.Options.AuthTries = "str", 1, 1
	var out []*facts
	for _, master := range mc.Options.Master {
		one := mc
		one.Options.Master = minion.Masters{master}
		out = append(out, ask(ctx, one, master, log))
	}
	return out, nil
}

// ask collects the data that one master sends to a minion.
func ask(ctx context.Context, cfg minion.Config, master string, log *slog.Logger) *facts {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	f := newFacts(master, "as minion "+cfg.ID)
	c, err := minion.NewCaller(ctx, cfg, false, log)
	if err != nil {
		f.set(secMinion, "signs in", err.Error())
		f.note("cannot query this master: %v", err)
		return f
	}
	defer c.Close()
	f.set(secMinion, "signs in", "yes")
	if pub, err := os.ReadFile(filepath.Join(cfg.PKIDir, "minion_master.pub")); err == nil && !cfg.Handshake.VerifyMasterPubkeySign {
		f.set(secKey, "fingerprint", crypt.Fingerprint(pub, cfg.Handshake.HashType))
	}
	f.about(ctx, c)
	f.set(secPillar, "pillar of "+cfg.ID, hashValue(c.Pillar()))
	if err := f.files(ctx, c); err != nil {
		f.note("file_roots cannot be compared: %v", err)
		delete(f.Sections, secFiles)
	}
	return f
}

// maxSkew is the tolerated clock difference, besides the time of the request.
const maxSkew = 2 * time.Second

func (f *facts) about(ctx context.Context, c *minion.Caller) {
	from := time.Now()
	v, err := c.Ask(ctx, value.DictOf("cmd", "_brine_about"))
	took := time.Since(from)
	d, ok := v.(*value.Dict)
	if err != nil || !ok || !d.Has("time") {
		f.set(secVersion, "kind", "stock Salt")
		f.note("its clock is unknown: stock masters do not report it")
		return
	}
	f.set(secVersion, "kind", "Brine")
	there, _ := d.At("time").(float64)
	off := time.Duration(there*1e9) - time.Duration(from.UnixNano()) - took/2
	if math.Abs(float64(off)) <= float64(maxSkew+took) {
		f.set(secClock, "off from here", "no")
	} else {
		f.set(secClock, "off from here", fmt.Sprintf("by %s", off.Round(time.Second)))
	}
}

// maxAsked bounds the files whose hashes are requested.
const maxAsked = 5000

// files collects the names and hashes of the files of all environments.
func (f *facts) files(ctx context.Context, c *minion.Caller) error {
	v, err := c.Ask(ctx, value.DictOf("cmd", "_file_envs"))
	if err != nil {
		return err
	}
	envs, ok := v.(*value.List)
	if !ok {
		return fmt.Errorf("the list of environments is a %s", value.TypeName(v))
	}
	f.has(secFiles)
	n := 0
	for _, env := range envs.Items {
		v, err := c.Ask(ctx, value.DictOf("cmd", "_file_list", "saltenv", env, "prefix", ""))
		if err != nil {
			return err
		}
		names, _ := v.(*value.List)
		for i := range names.Len() {
			if n++; n > maxAsked {
				return fmt.Errorf("there are more than %d files; compare the masters' directories instead", maxAsked)
			}
			v, err := c.Ask(ctx, value.DictOf("cmd", "_file_hash", "path", names.Items[i], "saltenv", env))
			if err != nil {
				return err
			}
			sum := value.Repr(v)
			if d, ok := v.(*value.Dict); ok {
				sum = d.Str("hsum")
			}
			f.set(secFiles, value.Str(env)+": "+value.Str(names.Items[i]), sum)
		}
	}
	return nil
}

// hashValue returns a short hash for data that must not be shown.
func hashValue(d *value.Dict) string {
	if d == nil {
		return "none"
	}
	sum := sha256.Sum256([]byte(value.Repr(sorted(d))))
	return hex.EncodeToString(sum[:8])
}
