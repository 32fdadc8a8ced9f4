//go:build !linux

package journal

import "os"

func toDisk(f *os.File) error { return f.Sync() }
