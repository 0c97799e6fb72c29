// Package models is Berth's language: typed ids, states and their legal
// transitions, policies, error codes, and pure deciders that take `now`.
//
// It owns every word that two rooms share and imports the standard library
// only, so that every room may import it. Nothing here does I/O.
package models
