package minion

import (
	"fmt"
	"log/slog"

	"brine/internal/daemons/minion/address"
	"brine/internal/daemons/minion/beacons"
	"brine/internal/daemons/minion/grains"
	"brine/internal/daemons/minion/masters"
	"brine/internal/daemons/minion/returners"
	"brine/internal/daemons/minion/schedule"
	"brine/internal/daemons/usermodules"
)

// CheckStart returns the errors that would prevent a minion with this
// configuration from starting. It logs to log what the start logs about parts
// that do not work. It changes nothing and connects to no master.
func CheckStart(cfg *Config, log *slog.Logger) (faults []error) {
	o := &cfg.Options
	if err := checkOptions(cfg); err != nil {
		faults = append(faults, err)
	}
	for _, text := range o.Master {
		if _, err := address.Parse(text, o.MasterPort, o.MasterURIFormat == "ip_only"); err != nil && o.MasterType != masters.TypeDisable {
			faults = append(faults, err)
		}
	}
	if cfg.Handshake.VerifyMasterPubkeySign {
		if _, err := loadSigners(*cfg); err != nil {
			faults = append(faults, fmt.Errorf("verify_master_pubkey_sign needs the masters' signing key: %w", err))
		}
	}
	m := &Minion{cfg: *cfg, log: log}
	m.grains = grains.New(grains.Config{ID: cfg.ID})
	m.user, m.userBeacons = m.userModules(usermodules.MinionKinds), m.userModules(usermodules.BeaconKinds)
	defer m.user.Close()
	defer m.userBeacons.Close()
	m.userFiles = m.ownFiles()
	defer m.userFiles.Close()
	m.returners = returners.New(m.returnersConfig(""))
	m.localServer()
	var err error
	if m.schedule, err = schedule.New(schedule.Config{Options: o.ScheduleOptions, Log: log}); err != nil {
		return append(faults, err)
	}
	if m.beacons, err = beacons.New(beacons.Config{Options: o.BeaconOptions, Python: m.userBeacons.Beacons(), Log: log}); err != nil {
		return append(faults, err)
	}
	if cfg.local() {
		m.own = cfg.ownPillar(nil, nil, m.user, nil, m.grains, nil, log)
	}
	m.reportBroken()
	return faults
}
