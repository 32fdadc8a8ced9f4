package files

import (
	"context"
	"os"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/catalogue/actions/managed"
	"brine/internal/host"
	"brine/internal/host/proc"
	"brine/internal/sls/state/sources"
)

// checkCommand are the arguments of states that check new content with a command.
type checkCommand struct {
	CheckCmd string `salt:"check_cmd" doc:"command that gets the name of a file with the new content and must succeed before it is used" default:"null"`
	TmpDir   string `salt:"tmp_dir" doc:"directory of the file for check_cmd" default:""`
	TmpExt   string `salt:"tmp_ext" doc:"end of its name" default:""`
}

// accepts runs check_cmd on new content.
func (c checkCommand) accepts(ctx context.Context, m *host.Machine, want *sources.Content, own managed.Owner) error {
	if c.CheckCmd == "" || want == nil {
		return nil
	}
	f, err := os.CreateTemp(c.TmpDir, "__salt.tmp.*"+c.TmpExt)
	if err != nil {
		return fn.Errorf("Unable to check_cmd file: %w", err)
	}
	defer os.Remove(f.Name())
	err = want.Pour(f)
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		_, err = own.Apply(m, f.Name(), true)
	}
	if err != nil {
		return fn.Errorf("Unable to check_cmd file: %w", err)
	}
	words, err := proc.Split(c.CheckCmd + " " + f.Name()) // as in Salt, without a shell
	if err != nil {
		return fn.Errorf("Unable to check_cmd file: %w", err)
	}
	r, err := proc.Run(ctx, proc.Cmd{Args: words, Env: os.Environ()})
	if err != nil {
		return fn.Errorf("check_cmd execution failed\n%w", err)
	}
	if r.Code != 0 {
		text := "check_cmd execution failed"
		for _, out := range [][]byte{r.Stdout, r.Stderr} {
			if s := strings.TrimRight(string(out), "\n"); s != "" {
				text += "\n" + s
			}
		}
		return fn.Errorf("%s", text)
	}
	return nil
}
