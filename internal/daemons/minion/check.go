package minion

import (
	"fmt"

	"brine/internal/daemons/minion/address"
	"brine/internal/daemons/minion/masters"
)

// CheckStart returns the errors that would prevent a minion with this
// configuration from starting. It connects to no master.
func CheckStart(cfg *Config) (faults []error) {
	o := &cfg.Options
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
	return faults
}
