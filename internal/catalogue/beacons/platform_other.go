//go:build !linux

package beacons

func platform() []Beacon { return nil }
