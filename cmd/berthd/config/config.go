package config

// Config is berthd's configuration. The yaml names are the file's keys; example.yaml
// explains each. A marshalled Config is a valid file, secrets included.
type Config struct {
	Listen      string                `yaml:"listen,omitempty"`
	StopDelay   Duration              `yaml:"stop_delay"` // 0: none
	PublicURL   string                `yaml:"public_url,omitempty"`
	Roles       []Role                `yaml:"roles,omitempty"`
	Log         Log                   `yaml:"log,omitempty"`
	Database    Database              `yaml:"database,omitempty"`
	Auth        Auth                  `yaml:"auth,omitempty"`
	Stores      map[string]Store      `yaml:"stores,omitempty"`
	Events      Events                `yaml:"events,omitempty"`
	Worker      Worker                `yaml:"worker,omitempty"`
	Reap        Reap                  `yaml:"reap,omitempty"`
	Outbox      Outbox                `yaml:"outbox,omitempty"`
	Webhooks    Webhooks              `yaml:"webhooks,omitempty"`
	Limits      Limits                `yaml:"limits,omitempty"`
	Telemetry   Telemetry             `yaml:"telemetry,omitempty"`
	CORS        CORS                  `yaml:"cors,omitempty"`
	Collections map[string]Collection `yaml:"collections,omitempty"`
}

// Role is one of the things that a berthd process does.
type Role string

// The roles. A process without a list has all of them.
const (
	RoleAPI    Role = "api"
	RoleEvents Role = "events"
	RoleWorker Role = "worker"
)

// Roles are all roles.
var Roles = []Role{RoleAPI, RoleEvents, RoleWorker}

// Log says what is logged, and how.
type Log struct {
	Level  string `yaml:"level,omitempty"`  // debug, info, warn, error
	Format string `yaml:"format,omitempty"` // json, text
}

// Database says where the rows are.
type Database struct {
	URL      Secret `yaml:"url,omitempty"`
	URLFile  string `yaml:"url_file,omitempty"`
	MaxConns int    `yaml:"max_conns,omitempty"`
}

// Auth says whose tokens are taken: those signed with the secret, those signed by a
// key of the set, or both.
type Auth struct {
	HS256Secret     Secret   `yaml:"hs256_secret,omitempty"`
	HS256SecretFile string   `yaml:"hs256_secret_file,omitempty"`
	JWKSURL         string   `yaml:"jwks_url,omitempty"`
	Issuer          string   `yaml:"issuer,omitempty"`
	Audience        string   `yaml:"audience,omitempty"`
	Leeway          Duration `yaml:"leeway,omitempty"`
}

// Store is one bucket on one endpoint.
type Store struct {
	Endpoint              string `yaml:"endpoint,omitempty"`
	PublicEndpoint        string `yaml:"public_endpoint,omitempty"`
	Region                string `yaml:"region,omitempty"`
	Bucket                string `yaml:"bucket,omitempty"`
	Prefix                string `yaml:"prefix,omitempty"`
	PathStyle             *bool  `yaml:"path_style,omitempty"` // never nil after Load
	ChecksumWhenRequired  bool   `yaml:"checksum_when_required,omitempty"`
	AccessKeyID           string `yaml:"access_key_id,omitempty"`
	SecretAccessKey       Secret `yaml:"secret_access_key,omitempty"`
	SecretAccessKeyFile   string `yaml:"secret_access_key_file,omitempty"`
	NotificationToken     Secret `yaml:"notification_token,omitempty"`
	NotificationTokenFile string `yaml:"notification_token_file,omitempty"`
	ExpectedBucketOwner   string `yaml:"expected_bucket_owner,omitempty"`
}

// Events says where S3's notifications are read from. Without a queue they come by
// webhook only.
type Events struct {
	QueueURL            string   `yaml:"queue_url,omitempty"`
	Endpoint            string   `yaml:"endpoint,omitempty"`
	Region              string   `yaml:"region,omitempty"`
	AccessKeyID         string   `yaml:"access_key_id,omitempty"`
	SecretAccessKey     Secret   `yaml:"secret_access_key,omitempty"`
	SecretAccessKeyFile string   `yaml:"secret_access_key_file,omitempty"`
	Pollers             int      `yaml:"pollers,omitempty"`
	Visibility          Duration `yaml:"visibility,omitempty"`
}

// Worker says how the work in the background is done.
type Worker struct {
	Interval    Duration    `yaml:"interval,omitempty"`
	Lease       Duration    `yaml:"lease,omitempty"`
	Reconcile   Duration    `yaml:"reconcile"` // 0: never
	History     Duration    `yaml:"history"`   // 0: for ever
	Concurrency Concurrency `yaml:"concurrency,omitempty"`
}

// Concurrency is how many tasks of each kind run at once in this process.
type Concurrency struct {
	Replicate int `yaml:"replicate,omitempty"`
	Process   int `yaml:"process,omitempty"`
	Reap      int `yaml:"reap,omitempty"`
}

// Reap says how due reap tasks come to the workers. The queue is reached as that of events is.
type Reap struct {
	Dispatch   string   `yaml:"dispatch,omitempty"` // poll, sqs
	QueueURL   string   `yaml:"queue_url,omitempty"`
	Pollers    int      `yaml:"pollers,omitempty"`
	Visibility Duration `yaml:"visibility,omitempty"`
	Again      Duration `yaml:"again,omitempty"`
	Net        Duration `yaml:"net,omitempty"`
}

// Ways of dispatching.
const (
	DispatchPoll = "poll"
	DispatchSQS  = "sqs"
)

// Outbox says whom the events about files are told to: each of those that are named.
type Outbox struct {
	QueueURL          string `yaml:"queue_url,omitempty"`
	TopicARN          string `yaml:"topic_arn,omitempty"`
	WebhookURL        string `yaml:"webhook_url,omitempty"`
	WebhookSecret     Secret `yaml:"webhook_secret,omitempty"`
	WebhookSecretFile string `yaml:"webhook_secret_file,omitempty"`
}

// Webhooks says where the calls that berthd makes may go.
type Webhooks struct {
	AllowPrivate bool `yaml:"allow_private,omitempty"`
}

// Limits bound what one request may cost.
type Limits struct {
	MaxBody        Bytes    `yaml:"max_body,omitempty"`
	RequestTimeout Duration `yaml:"request_timeout,omitempty"`
	CallerRate     int      `yaml:"caller_rate,omitempty"`
	CallerBurst    int      `yaml:"caller_burst,omitempty"`
	AddressRate    int      `yaml:"address_rate,omitempty"`
	AddressBurst   int      `yaml:"address_burst,omitempty"`
	TrustedProxies []string `yaml:"trusted_proxies,omitempty"`
}

// Telemetry says where traces go. Metrics are scraped, from /metrics.
type Telemetry struct {
	OTLPEndpoint string   `yaml:"otlp_endpoint,omitempty"`
	SampleRatio  *float64 `yaml:"sample_ratio,omitempty"` // nil: as OTEL_TRACES_SAMPLER says
	ServiceName  string   `yaml:"service_name,omitempty"`
}

// CORS says which web pages may call the API.
type CORS struct {
	AllowedOrigins []string `yaml:"allowed_origins,omitempty"`
}

// Collection is the file's form of models.Collection. Policies gives the latter.
type Collection struct {
	Extensions       []string `yaml:"extensions,omitempty"`
	ContentTypes     []string `yaml:"content_types,omitempty"`
	MinSize          Bytes    `yaml:"min_size,omitempty"`
	MaxSize          Bytes    `yaml:"max_size,omitempty"`
	MaxFiles         int64    `yaml:"max_files,omitempty"`
	MaxBytes         Bytes    `yaml:"max_bytes,omitempty"`
	MaxOpen          int64    `yaml:"max_open,omitempty"`
	Dedupe           string   `yaml:"dedupe,omitempty"`
	Algorithm        string   `yaml:"algorithm,omitempty"`
	ChecksumRequired bool     `yaml:"checksum_required,omitempty"`
	Commit           string   `yaml:"commit,omitempty"`
	Store            string   `yaml:"store,omitempty"`
	PartSize         Bytes    `yaml:"part_size,omitempty"`
	SingleMax        Bytes    `yaml:"single_max,omitempty"`
	Deadline         Duration `yaml:"deadline,omitempty"`
	HardDeadline     Duration `yaml:"hard_deadline,omitempty"`
	Grace            Duration `yaml:"grace,omitempty"`
	URLExpiry        Duration `yaml:"url_expiry,omitempty"`
	StorageClass     string   `yaml:"storage_class,omitempty"`
	SSEKMSKeyID      string   `yaml:"sse_kms_key_id,omitempty"`
	InlineTypes      []string `yaml:"inline_types,omitempty"`
	VerifyOnRead     bool     `yaml:"verify_on_read,omitempty"`
	MaxMetadataBytes Bytes    `yaml:"max_metadata_bytes,omitempty"`
	Steps            []Step   `yaml:"steps,omitempty"`
}

// Step is one member of a collection's processing chain.
type Step struct {
	Name       string   `yaml:"name,omitempty"`
	Kind       string   `yaml:"kind,omitempty"`
	URL        string   `yaml:"url,omitempty"`
	Secret     Secret   `yaml:"secret,omitempty"`
	SecretFile string   `yaml:"secret_file,omitempty"`
	Timeout    Duration `yaml:"timeout,omitempty"`
	Action     string   `yaml:"action,omitempty"` // of inspect
}
