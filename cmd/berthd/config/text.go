package config

import "os"

// TextEnv holds a whole configuration, for places that have variables but no files to
// mount. A file that is named wins over it.
const TextEnv = "BERTH_CONFIG_YAML"

// LoadText is Load of such a text.
func LoadText(text string) (*Config, error) { return load("", []byte(text), os.Environ()) }
