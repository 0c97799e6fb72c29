package config

import (
	"fmt"
	"mime"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"berth/models"
)

const (
	minSecret    = 32 // bytes of an HS256 key; RFC 7518, 3.2
	minToken     = 16 // bytes of a store's notification token
	maxURLExpiry = 7 * day
	minLease     = 10 * time.Second
)

// check looks at what the values mean. It runs also when some keys were wrong, so
// that all mistakes are seen at once; it is silent about those keys.
func (l *loader) check() {
	c := &l.config
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		l.wrong("listen", "is not host:port or :port")
	}
	l.between("stop_delay", c.StopDelay, 0, 5*time.Minute)
	if c.PublicURL != "" {
		l.url("public_url", c.PublicURL)
	}
	oneOf(l, "log.level", c.Log.Level, "debug", "info", "warn", "error")
	oneOf(l, "log.format", c.Log.Format, "json", "text")
	if len(c.Roles) == 0 {
		l.wrong("roles", "is empty; leave it out for all of them")
	}
	for i, r := range c.Roles {
		oneOf(l, index("roles", i), r, Roles...)
	}
	l.checkDatabase()
	l.checkAuth()
	l.checkStores()
	l.checkEvents()
	l.between("worker.interval", c.Worker.Interval, 100*time.Millisecond, time.Hour)
	l.between("worker.lease", c.Worker.Lease, minLease, time.Hour)
	if c.Worker.Reconcile != 0 {
		l.between("worker.reconcile", c.Worker.Reconcile, time.Minute, 31*24*time.Hour)
	}
	if c.Worker.History != 0 {
		l.between("worker.history", c.Worker.History, 31*day, 100*365*day)
	}
	l.count("worker.concurrency.replicate", c.Worker.Concurrency.Replicate, 256)
	l.count("worker.concurrency.process", c.Worker.Concurrency.Process, 256)
	l.count("worker.concurrency.reap", c.Worker.Concurrency.Reap, 256)
	l.checkReap()
	l.checkOutbox()
	l.size("limits.max_body", c.Limits.MaxBody, 64<<10, 16<<20)
	l.between("limits.request_timeout", c.Limits.RequestTimeout, time.Second, 10*time.Minute)
	l.rate("limits.caller", c.Limits.CallerRate, c.Limits.CallerBurst)
	l.rate("limits.address", c.Limits.AddressRate, c.Limits.AddressBurst)
	for i, p := range c.Limits.TrustedProxies {
		if _, err := netip.ParsePrefix(p); err != nil {
			if _, err := netip.ParseAddr(p); err != nil {
				l.wrong(index("limits.trusted_proxies", i), "is neither an address nor a range such as 10.0.0.0/8")
			}
		}
	}
	if c.Telemetry.OTLPEndpoint != "" {
		l.url("telemetry.otlp_endpoint", c.Telemetry.OTLPEndpoint)
	}
	if r := c.Telemetry.SampleRatio; r != nil && !(*r >= 0 && *r <= 1) { // NaN is neither
		l.wrong("telemetry.sample_ratio", "is not from 0 to 1")
	}
	for i, o := range c.CORS.AllowedOrigins {
		if o != "*" {
			l.origin(index("cors.allowed_origins", i), o)
		}
	}
	for _, name := range sortedKeys(c.Collections) {
		l.checkCollection("collections."+name, c.Collections[name])
	}
}

// Has tells whether the process has the role.
func (c *Config) Has(r Role) bool { return slices.Contains(c.Roles, r) }

func (l *loader) checkDatabase() {
	d := l.config.Database
	if !l.bad["database.url_file"] {
		switch u, err := url.Parse(d.URL.Reveal()); {
		case d.URL == "":
			l.wrong("database.url", "is missing; give it here or in $%s", EnvName("database.url"))
		case err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql":
			l.wrong("database.url", "is not a postgres:// URL")
		}
	}
	l.count("database.max_conns", d.MaxConns, 1000)
}

func (l *loader) checkAuth() {
	a := l.config.Auth
	if a.HS256Secret != "" && len(a.HS256Secret) < minSecret {
		l.wrong("auth.hs256_secret", "has fewer than %d bytes", minSecret)
	}
	if a.JWKSURL != "" && l.url("auth.jwks_url", a.JWKSURL) && strings.HasPrefix(a.JWKSURL, "http:") && !loopback(a.JWKSURL) {
		l.wrong("auth.jwks_url", "is not https: anybody on the way could sign tokens")
	}
	if l.config.Has(RoleAPI) && a.HS256Secret == "" && a.JWKSURL == "" && !l.bad["auth.hs256_secret_file"] && !l.bad["auth.hs256_secret"] {
		l.wrong("auth", "needs hs256_secret or jwks_url, else no token is good")
	}
	l.between("auth.leeway", a.Leeway, 0, 5*time.Minute)
}

var (
	bucketPattern  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{1,253}[A-Za-z0-9]$`)
	prefixPattern  = regexp.MustCompile(`^([A-Za-z0-9._-]+/)*$`)
	accountPattern = regexp.MustCompile(`^[0-9]{12}$`)
)

func (l *loader) rate(at string, perSecond, burst int) {
	if perSecond < 0 || perSecond > 1e6 {
		l.wrong(at+"_rate", "is not between 0 and 1000000")
	}
	if burst < 0 || burst > 1e6 {
		l.wrong(at+"_burst", "is not between 0 and 1000000")
	}
}

func (l *loader) checkStores() {
	stores := l.config.Stores
	if len(stores) == 0 && !l.bad["stores"] {
		l.wrong("stores", "there is none; name one here, or give $BERTH_S3_BUCKET")
	}
	names := sortedKeys(stores)
	for i, name := range names {
		at, s := "stores."+name, stores[name]
		if s.Bucket == "" {
			l.wrong(at+".bucket", "is missing")
		} else if !bucketPattern.MatchString(s.Bucket) {
			l.wrong(at+".bucket", "is not a bucket's name")
		}
		if !prefixPattern.MatchString(s.Prefix) || len(s.Prefix) > 256 {
			l.wrong(at+".prefix", "has other than letters, digits, . _ - and /, or does not end with /")
		}
		if s.Endpoint != "" {
			l.url(at+".endpoint", s.Endpoint)
		}
		if s.PublicEndpoint != "" {
			l.url(at+".public_endpoint", s.PublicEndpoint)
		}
		l.keyPair(at, s.AccessKeyID, s.SecretAccessKey)
		if t := s.NotificationToken; t != "" && len(t) < minToken {
			l.wrong(at+".notification_token", "has fewer than %d bytes", minToken)
		}
		if o := s.ExpectedBucketOwner; o != "" && !accountPattern.MatchString(o) {
			l.wrong(at+".expected_bucket_owner", "is not an account id of 12 digits")
		}
		for _, other := range names[:i] {
			o := stores[other]
			if s.Bucket != "" && o.Bucket == s.Bucket && (strings.HasPrefix(s.Prefix, o.Prefix) || strings.HasPrefix(o.Prefix, s.Prefix)) {
				l.wrong(at+".bucket", "is the one of store %s, with a prefix that overlaps: events tell stores apart by bucket and prefix", other)
			}
		}
	}
}

func (l *loader) keyPair(at, id string, secret Secret) {
	if id != "" && secret == "" && !l.bad[at+".secret_access_key_file"] {
		l.wrong(at+".secret_access_key", "is missing, since access_key_id is given")
	}
	if id == "" && secret != "" {
		l.wrong(at+".access_key_id", "is missing, since secret_access_key is given")
	}
}

func (l *loader) checkEvents() {
	e := l.config.Events
	if e.QueueURL != "" {
		l.url("events.queue_url", e.QueueURL)
	}
	if e.Endpoint != "" {
		l.url("events.endpoint", e.Endpoint)
	}
	if e.QueueURL == "" && slices.Equal(l.config.Roles, []Role{RoleEvents}) {
		l.wrong("events.queue_url", "is missing, and this process has no other role")
	}
	l.keyPair("events", e.AccessKeyID, e.SecretAccessKey)
	l.count("events.pollers", e.Pollers, 64)
	l.between("events.visibility", e.Visibility, 2*time.Second, 12*time.Hour)
}

var extensionPattern = regexp.MustCompile(fmt.Sprintf(`^[a-z0-9]{1,%d}$`, models.MaxExtension))

func (l *loader) checkCollection(at string, c Collection) {
	for i, e := range c.Extensions {
		if !extensionPattern.MatchString(e) {
			l.wrong(index(at+".extensions", i), "is not 1 to %d of a-z and 0-9, without the dot", models.MaxExtension)
		}
	}
	l.types(at+".content_types", c.ContentTypes)
	l.types(at+".inline_types", c.InlineTypes)
	l.size(at+".max_size", c.MaxSize, 0, models.MaxObjectSize)
	if c.MaxSize > 0 && c.MinSize > c.MaxSize {
		l.wrong(at+".min_size", "is more than max_size")
	}
	l.size(at+".min_size", c.MinSize, 0, models.MaxObjectSize)
	if c.MaxFiles < 0 {
		l.wrong(at+".max_files", "is negative")
	}
	if c.MaxOpen < 0 {
		l.wrong(at+".max_open", "is negative")
	}
	oneOf(l, at+".dedupe", models.DedupeMode(c.Dedupe), models.DedupeNone, models.DedupeReject, models.DedupeReuse)
	oneOf(l, at+".algorithm", models.Algorithm(c.Algorithm), models.Algorithms...)
	oneOf(l, at+".commit", models.CommitMode(c.Commit), models.CommitAuto, models.CommitDeferred)
	switch {
	case c.Store != "":
		l.store(at+".store", c.Store)
	case len(l.config.Stores) > 1:
		l.wrong(at+".store", "is missing: there is more than one store, and none is called main")
	}
	l.size(at+".part_size", c.PartSize, models.MinPartSize, models.MaxPartSize)
	l.size(at+".single_max", c.SingleMax, 1, models.MaxSinglePut)
	l.between(at+".deadline", c.Deadline, time.Second, 365*day)
	l.between(at+".hard_deadline", c.HardDeadline, c.Deadline.Std(), 365*day)
	l.between(at+".grace", c.Grace, 0, 365*day)
	l.between(at+".url_expiry", c.URLExpiry, time.Second, maxURLExpiry)
	l.size(at+".max_metadata_bytes", c.MaxMetadataBytes, 0, models.MaxMetadataBytes)
	l.checkSteps(at+".steps", c.Steps)
}

func (l *loader) checkOutbox() {
	o := l.config.Outbox
	if o.QueueURL != "" {
		l.url("outbox.queue_url", o.QueueURL)
	}
	if o.TopicARN != "" && !strings.HasPrefix(o.TopicARN, "arn:") {
		l.wrong("outbox.topic_arn", "is not an ARN")
	}
	if o.WebhookURL == "" {
		return
	}
	l.url("outbox.webhook_url", o.WebhookURL)
	if len(o.WebhookSecret) < minToken && !l.bad["outbox.webhook_secret_file"] {
		l.wrong("outbox.webhook_secret", "has fewer than %d bytes; calls are signed with it", minToken)
	}
}

func (l *loader) checkSteps(at string, steps []Step) {
	seen := map[string]bool{}
	for i, s := range steps {
		key := index(at, i)
		if !namePattern.MatchString(s.Name) {
			l.wrong(key+".name", "%s", nameRule)
		} else if seen[s.Name] {
			l.wrong(key+".name", "is the name of an earlier step")
		}
		seen[s.Name] = true
		oneOf(l, key+".kind", s.Kind, "webhook", "inspect")
		if s.Kind == "webhook" {
			if s.URL == "" {
				l.wrong(key+".url", "is missing")
			} else {
				l.url(key+".url", s.URL)
			}
			if len(s.Secret) < minToken && !l.bad[key+".secret_file"] {
				l.wrong(key+".secret", "has fewer than %d bytes; calls are signed with it", minToken)
			}
		}
		if s.Kind == "inspect" {
			oneOf(l, key+".action", s.Action, "block", "delete")
		}
		l.between(key+".timeout", s.Timeout, time.Second, time.Hour)
	}
}

func (l *loader) store(key, name string) {
	if _, ok := l.config.Stores[name]; !ok {
		l.wrong(key, "no store has this name%s", like(name, sortedKeys(l.config.Stores)))
	}
}

func (l *loader) types(at string, list []string) {
	for i, t := range list {
		if media, _, err := mime.ParseMediaType(t); err != nil || media != t || strings.Count(t, "/") != 1 {
			l.wrong(index(at, i), `is not a media type such as image/png or image/*, in lower case`)
		}
	}
}

func (l *loader) between(key string, d Duration, least, most time.Duration) {
	if d.Std() < least || d.Std() > most {
		l.wrong(key, "must be from %s to %s", Duration(least), Duration(most))
	}
}

func (l *loader) size(key string, b Bytes, least, most int64) {
	if int64(b) < least || int64(b) > most {
		from, _ := Bytes(least).MarshalText()
		to, _ := Bytes(most).MarshalText()
		l.wrong(key, "must be from %s to %s", from, to)
	}
}

func (l *loader) count(key string, n, most int) {
	if n < 1 || n > most {
		l.wrong(key, "must be from 1 to %d", most)
	}
}

func oneOf[T ~string](l *loader, key string, v T, known ...T) {
	if slices.Contains(known, v) {
		return
	}
	words := make([]string, len(known))
	for i, k := range known {
		words[i] = string(k)
	}
	l.wrong(key, "must be one of %s%s", strings.Join(words, ", "), like(string(v), words))
}

// url checks an absolute http or https URL, without a password in it.
func (l *loader) url(key, s string) bool {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		l.wrong(key, "is not a URL that begins with http:// or https://")
	case u.User != nil:
		l.wrong(key, "has a user in it; URLs are logged")
	default:
		return true
	}
	return false
}

func (l *loader) origin(key, s string) {
	if u, err := url.Parse(s); err != nil || !l.url(key, s) || u.Path != "" || u.RawQuery != "" {
		l.wrong(key, "is not an origin such as https://app.example.com")
	}
}

func loopback(s string) bool {
	u, err := url.Parse(s)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Hostname() == "localhost" || err == nil && ip.IsLoopback()
}

func index(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }
