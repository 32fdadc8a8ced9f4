package pki

import (
	"context"
	"path/filepath"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/catalogue/actions/naclboxes"
	"brine/internal/host"
)

func init() { units.Register("nacl", naclModule) }

func naclModule(m *host.Machine) fn.Module {
	return naclboxes.Module(naclboxes.Boxes{Command: "salt-call", Read: func(ctx context.Context, c *fn.Call, name string) ([]byte, error) {
		if filepath.IsAbs(name) {
			return naclboxes.ReadLocal(m.Path(name))
		}
		env, _ := c.Config.Get("saltenv").(string)
		if env == "" {
			env = "base"
		}
		if strings.HasPrefix(name, "salt://") {
			return c.Files.Read(ctx, name, env)
		}
		path, err := c.Files.CacheFile(ctx, name, env)
		if err != nil {
			return nil, err
		}
		return naclboxes.ReadLocal(path)
	}})
}
