package master

import (
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"

	"brine/internal/base/salt"
	"brine/internal/daemons/master/sinks"
	"brine/internal/net/crypt"
	"brine/internal/net/event"
	"brine/internal/net/remote"
	transports "brine/internal/net/transport/named"
	"brine/internal/store/consoledb"
)

// CheckStart returns the errors that would prevent a master with this configuration from starting. It
// logs to log what the start would log about parts that do not work. It runs the same code as the
// start, changes nothing and connects to no server.
func CheckStart(cfg *Config, log *slog.Logger) (faults []error) {
	m := &Master{cfg: *cfg, log: log, bus: event.NewBus(cfg.Events.MaxEventSize)}
	findReturners(m)
	makeSettings(m)
	defer m.closeModules()

	store, err := openStoreOfRecord(cfg, log)
	faults = append(faults, err)
	store.Close()
	driver, err := openDriver(cfg)
	faults = append(faults, err)
	if driver != nil {
		driver.Close()
	}
	if name := cfg.Options.ConsoleStore; name != "" {
		db, err := consoledb.Open(name, remote.Options(cfg.Opts), cfg.Returners.Timeout)
		if err == nil {
			db.Close()
		} else {
			faults = append(faults, salt.Errorf(salt.KindOf(err), "console_store: %w", err))
		}
	}
	faults = append(faults, sinks.Check(m.sinkConfig()))
	if cfg.Options.MasterSignPubkey && cfg.Options.MasterUsePubkeySignature {
		_, err := storedSignature(filepath.Join(cfg.PKIDir, cfg.Options.MasterPubkeySignature))
		faults = append(faults, err)
	}
	for i := range cfg.Listen {
		_, err := transports.ClientTLS(cfg.Listen[i].Transport.Name(), cfg.SSL)
		faults = append(faults, err)
	}

	if err := configure(m); err != nil {
		faults = append(faults, err)
	} else {
		m.inside = &insideCalls{options: cfg.Client, opts: cfg.Opts, bus: m.bus, log: log}
		_, err := newReactor(cfg.Reactor, m.templates, m.inside, nil)
		faults = append(faults, err)
	}
	for _, r := range sinks.NewEventReturners(cfg.EventReturn, m.sinkConfig(), m.bus, log) {
		r.Close()
	}
	faults = append(faults, checkPair(cfg)...)
	return slices.DeleteFunc(faults, func(err error) bool { return err == nil })
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
