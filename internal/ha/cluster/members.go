package cluster

// Isolated reports whether the masters share no directory.
func (c *Cluster) Isolated() bool { return c.cfg.Options.Isolated }
