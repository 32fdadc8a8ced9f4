package ha

import (
	"maps"
	"slices"
	"strings"
)

// difference is an item that differs between masters.
type difference struct {
	Section string            `json:"section"`
	Item    string            `json:"item"`
	Values  map[string]string `json:"values"` // by master; "" if missing
	Fix     string            `json:"fix"`
}

// compare returns the differences between masters, section by section.
func compare(all []*facts) (out []difference) {
	sections := map[string]bool{}
	for _, f := range all {
		for s := range f.Sections {
			sections[s] = true
		}
	}
	for _, s := range slices.Sorted(maps.Keys(sections)) {
		out = append(out, compareSection(s, all)...)
	}
	return out
}

func compareSection(section string, all []*facts) (out []difference) {
	items := map[string]bool{}
	var known []*facts
	for _, f := range all {
		if m, ok := f.Sections[section]; ok {
			known = append(known, f)
			for item := range m {
				items[item] = true
			}
		}
	}
	if len(known) < 2 {
		return nil
	}
	signed := signing(all)
	for _, item := range slices.Sorted(maps.Keys(items)) {
		values, distinct := map[string]string{}, map[string]bool{}
		for _, f := range known {
			v := f.Sections[section][item]
			values[f.Master] = v
			distinct[v] = true
		}
		if len(distinct) > 1 && !(section == secKey && signed) {
			out = append(out, difference{section, item, values, fix(section, item, values)})
		}
	}
	return out
}

// signing reports whether all masters sign their public keys with one signing key. Then each may
// have its own key pair.
func signing(all []*facts) bool {
	first := ""
	for _, f := range all {
		s := f.Sections[secSigning]
		if s["used"] != "true" || s["fingerprint"] == "" || s["fingerprint"] == "none" {
			return false
		}
		if first == "" {
			first = s["fingerprint"]
		}
		if s["fingerprint"] != first {
			return false
		}
	}
	return first != ""
}

// fix returns how to resolve a difference.
func fix(section, item string, values map[string]string) string {
	var without []string
	for m, v := range values {
		if v == "" {
			without = append(without, m)
		}
	}
	slices.Sort(without)
	lack := strings.Join(without, ", ")
	switch section {
	case secKey:
		return "copy master.pem and master.pub from one master to the pki_dir of the others and restart them, or use one signing key on all (master_sign_pubkey)"
	case secSigning:
		if item == "used" {
			return "set master_sign_pubkey to the same value on all masters and restart them"
		}
		return "copy the pair master_sign.pem and master_sign.pub (master_sign_key_name) from one master to the others and restart those"
	case secAccepted:
		if lack != "" {
			return "compare the fingerprint with salt-call --local key.finger on the minion, then run on " + lack + ": salt-key -y -a " + item
		}
		return "two keys have the same id: compare with salt-call --local key.finger on the minion, and delete the wrong one with salt-key -d " + item
	case secRefused:
		return "decide whether to accept " + item + ": salt-key -r or salt-key -a on the masters that differ"
	case secFiles, secPillar:
		if lack != "" {
			return "the file is missing on " + lack + ": bring " + section + " to the same state on all masters (one repository, or rsync)"
		}
		return "bring " + section + " to the same state on all masters (one repository, or rsync)"
	case secAccess:
		return "permissions of users differ between masters: set " + item + " to the same value in the configuration of all"
	case secVersion:
		return "install the same version on all masters, one at a time"
	case secClock:
		return "synchronize the clocks of all masters with NTP"
	case secMinion:
		return "depending on the values: accept the key with salt-key -a, start the master, or correct its key"
	}
	return "set " + item + " to the same value in the configuration of all masters and restart them"
}
