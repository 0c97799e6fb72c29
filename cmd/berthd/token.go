package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"berth/cmd/berthd/config"
	"berth/controlplane/httpapi"
	"berth/models"

	"github.com/golang-jwt/jwt/v5"
)

type tokenCmd struct {
	configFlag
	Owner  string          `required:"" help:"Whose token it is: the claim sub."`
	Tenant string          `default:"default" help:"The owner's tenant."`
	Scope  []string        `default:"upload,read,delete" help:"What it may do: upload, read, delete, admin."`
	TTL    config.Duration `default:"24h" help:"For how long it is good: 15m, 24h, 7d." name:"ttl"`
	Grant  string          `help:"What narrows it, as JSON: collection, max_bytes, content_types, max_files, upload, id." placeholder:"JSON"`
	Secret string          `help:"The HS256 secret; without it, the configuration's." env:"BERTH_JWT_SECRET"`
}

// Run prints the token and nothing else.
func (t tokenCmd) Run(ctx context.Context, s streams) error {
	claims := jwt.MapClaims{"sub": t.Owner, "tenant": t.Tenant, "scope": strings.Join(t.Scope, " ")}
	known := []models.Scope{models.ScopeUpload, models.ScopeRead, models.ScopeDelete, models.ScopeAdmin}
	for _, scope := range t.Scope {
		if !slices.Contains(known, models.Scope(scope)) {
			return usageError(fmt.Sprintf("--scope: %q is none of %v", scope, known))
		}
	}
	if t.Owner == "" || t.Tenant == "" {
		return usageError("--owner and --tenant may not be empty")
	}
	if t.Grant != "" {
		var grant map[string]any
		if err := json.Unmarshal([]byte(t.Grant), &grant); err != nil {
			return usageError("--grant: is not a JSON object")
		}
		claims["berth"] = json.RawMessage(t.Grant)
	}
	secret := config.Secret(t.Secret)
	// A secret that is given needs no configuration; with one, its issuer and audience
	// are wanted too.
	if secret == "" || t.Config != "" {
		c, err := t.load()
		if err != nil {
			return err
		}
		if secret == "" {
			secret = c.Auth.HS256Secret
		}
		if c.Auth.Issuer != "" {
			claims["iss"] = c.Auth.Issuer
		}
		if c.Auth.Audience != "" {
			claims["aud"] = c.Auth.Audience
		}
	}
	if len(secret) < 32 {
		return usageError("the HS256 secret has fewer than 32 bytes; give --secret, or auth.hs256_secret in the configuration")
	}
	now := time.Now()
	claims["iat"], claims["exp"] = jwt.NewNumericDate(now), jwt.NewNumericDate(now.Add(t.TTL.Std()))
	signed, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString([]byte(secret.Reveal()))
	if err != nil {
		return fmt.Errorf("token: sign: %w", err)
	}
	v, err := httpapi.NewVerifier(ctx, httpapi.TokenConfig{Secret: []byte(secret.Reveal())})
	if err != nil {
		return fmt.Errorf("token: %w", err)
	}
	if _, err := v.Verify(ctx, signed); err != nil {
		return usageError("the server would refuse this token: look at --owner, --tenant, --ttl and the names and values of --grant")
	}
	_, err = fmt.Fprintln(s.out, signed)
	return err
}
