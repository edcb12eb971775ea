package oci

// WithoutUserNS makes a driver behave as on a host where user namespaces are off.
func WithoutUserNS(d *Driver) *Driver {
	d.noUserNS = func() string { return "a test switched them off" }
	return d
}
