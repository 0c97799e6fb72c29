// Package controlplane owns the use cases: open, sign, complete, verify, commit,
// abort, read, delete. It decides and orders; it speaks neither SQL nor S3 nor HTTP.
// It declares the small interfaces that it needs, and the rooms store and objects
// satisfy them without knowing.
//
// Two rules shape every flow. Intent is stored before the side effect, so that a
// crash between the two leaves a row that repair and the reaper will act on. No
// external call is made inside a transaction, so that a slow store never holds a
// lock.
//
// It imports models only.
package controlplane
