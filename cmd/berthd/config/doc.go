// Package config owns berthd's configuration: a YAML file, BERTH_* environment
// variables over it, defaults under it. It imports models and a YAML reader only.
//
// The file is decoded by hand over the reader's nodes, because every mistake is
// reported with the line it is on, all of them at once, and because a value that YAML
// would bend (a secret of digits, read as a number) must not be bent.
//
// Every scalar key can be given by an environment variable, which wins over the file:
// BERTH_ and the key's path in capitals, joined by underscores. database.url is
// BERTH_DATABASE_URL, stores.main.bucket is BERTH_STORES_MAIN_BUCKET,
// collections.my-docs.max_size is BERTH_COLLECTIONS_MY_DOCS_MAX_SIZE. Lists of words
// are separated by commas. Lists of steps have no variable.
//
// Short names, which the local cloud writes, fill what neither gives: see shorthands.
package config
