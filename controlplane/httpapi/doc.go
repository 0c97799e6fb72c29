// Package httpapi is Berth's HTTP face: the native JSON API with gin, the check of
// callers' tokens, the map from codes to statuses, and the OpenAPI document that
// describes all of it.
//
// It owns everything that is HTTP and nothing else: it authenticates, checks scopes,
// decodes strictly, calls one use case and encodes the answer. Who may touch which
// row is the use cases' decision, by the tenant and owner handed to them.
//
// It imports controlplane, client/wire and models of Berth.
package httpapi
