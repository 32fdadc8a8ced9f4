package master

import (
	"brine/internal/daemons/master/sinks"
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"

	"brine/internal/base/salt"
	"brine/internal/catalogue/reactor"
	"brine/internal/daemons/usermodules"
	"brine/internal/net/crypt"
	"brine/internal/net/remote"
	"brine/internal/store/cache/drivers"
	"brine/internal/store/returner"
)

// CheckStart returns the errors that would prevent a master with this
// configuration from starting. It changes nothing and connects to no server.
func CheckStart(cfg *Config) (faults []error) {
	if name := cfg.Cache.Driver; name != "" && !slices.Contains(drivers.Names(), name) {
		_, err := drivers.Open(name, nil, 0)
		faults = append(faults, err)
	}
	for _, name := range []string{cfg.Returners.JobCache, cfg.Client.ExtJobCache} {
		if name != "" && name != sinks.LocalJobs && name != "local" {
			if err := checkReturner(cfg, name); err != nil {
				faults = append(faults, err)
			}
		}
	}
	if name := cfg.Options.ConsoleStore; name != "" {
		if err := checkPostgres(cfg, name); err != nil {
			faults = append(faults, salt.Errorf(salt.KindOf(err), "console_store: %w", err))
		}
	}
	if cfg.Options.MasterSignPubkey && cfg.Options.MasterUsePubkeySignature {
		if _, err := storedSignature(filepath.Join(cfg.PKIDir, cfg.Options.MasterPubkeySignature)); err != nil {
			faults = append(faults, err)
		}
	}
	if _, err := reactor.New(cfg.Reactor, reactor.Deps{}); err != nil {
		faults = append(faults, err)
	}
	return append(faults, checkPair(cfg)...)
}

// checkReturner reports why a returner cannot store the master's jobs.
func checkReturner(cfg *Config, name string) error {
	own := userModules(cfg, usermodules.ReturnerKinds, nil, nil, slog.New(slog.DiscardHandler))
	defer own.Close()
	if slices.Contains(returner.Names(), name) && !own.Returners().Has(name) {
		if slices.Contains(returner.PostgresNames(), name) {
			return checkPostgres(cfg, name)
		}
		return nil // not opened: its options may name files or servers that do not exist yet
	}
	c := sinks.Config{Python: own.Returners()}
	_, err := c.Open(name)
	return err
}

// checkPostgres reports faults in the options of a returner for PostgreSQL. It does not connect.
func checkPostgres(cfg *Config, name string) error {
	db, err := returner.Postgres(name, remote.Options(cfg.Opts), cfg.Returners.Timeout)
	if err != nil {
		return err
	}
	return db.Close()
}

// checkPair checks that the master's public and private key belong together, if
// both are readable. The caller reports other errors of the private key.
func checkPair(cfg *Config) []error {
	pub, err := crypt.LoadPublic(filepath.Join(cfg.PKIDir, "master.pub"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return []error{salt.Errorf(salt.Invalid, "%w", err)}
	}
	k, err := crypt.LoadOwn(filepath.Join(cfg.PKIDir, "master.pem"), cfg.Options.KeyPass, slog.New(slog.DiscardHandler))
	if err != nil || pub.Equal(k.Public()) {
		return nil
	}
	return []error{wrongPublic(filepath.Join(cfg.PKIDir, "master.pub"))}
}
