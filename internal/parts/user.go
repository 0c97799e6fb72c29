package parts

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
)

// User is who a child runs as.
type User struct {
	Name     string
	UID, GID uint32
}

// unprivileged finds who PostgreSQL runs as when we are root, which it refuses
// to run as. It returns nil when we are not root.
func unprivileged() (*User, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("user %s: %w", name, err)
		}
		return &User{Name: name, UID: uint32(uid), GID: uint32(gid)}, nil
	}
	return nil, errors.New("PostgreSQL does not run as root, and there is neither a user postgres nor a user nobody to run it as")
}
