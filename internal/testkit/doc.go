// Package testkit gives each test its own database, bucket and queue on real
// parts, so that tests run in parallel and share nothing.
//
// It is for tests of every room. It imports internal/parts and migrations.
//
// The parts are those that `berthdev exec` runs for all test binaries, when it
// started us (BERTH_TEST_PARTS); else this process starts its own on first use.
// They end with the process, and so does their folder: nothing to call, no
// TestMain.
package testkit
