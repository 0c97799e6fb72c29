/**
 * The JSON that clients and the server exchange: client/wire of the repository, whose
 * golden files the tests of this package read. Types only; nothing is exported at run
 * time. Sizes are bytes, times are RFC 3339.
 */
export type Algorithm = "sha256" | "crc64nvme" | "crc32c";
/**
 * The JSON that clients and the server exchange: client/wire of the repository, whose
 * golden files the tests of this package read. Types only; nothing is exported at run
 * time. Sizes are bytes, times are RFC 3339.
 */
export type Checksum = {
    /**
     * "" in a request: the collection's
     */
    algorithm: Algorithm | "";
    type?: "composite" | "full_object" | undefined;
    /**
     * base64; a composite ends in "-" and the number of parts
     */
    value?: string | undefined;
    /**
     * in answers: the client stated the value
     */
    declared?: boolean | undefined;
};
/**
 * The JSON that clients and the server exchange: client/wire of the repository, whose
 * golden files the tests of this package read. Types only; nothing is exported at run
 * time. Sizes are bytes, times are RFC 3339.
 */
export type OpenRequest = {
    collection: string;
    name: string;
    size: number;
    content_type?: string | undefined;
    checksum?: Checksum | undefined;
    metadata?: unknown;
    commit?: "auto" | "deferred" | undefined;
    /**
     * go on with an open upload of the same identity
     */
    continue?: boolean | undefined;
    parent?: string | undefined;
};
/**
 * The JSON that clients and the server exchange: client/wire of the repository, whose
 * golden files the tests of this package read. Types only; nothing is exported at run
 * time. Sizes are bytes, times are RFC 3339.
 */
export type UploadState = "init" | "uploading" | "completing" | "completed" | "committed" | "rejected" | "aborted" | "expired";
/**
 * The JSON that clients and the server exchange: client/wire of the repository, whose
 * golden files the tests of this package read. Types only; nothing is exported at run
 * time. Sizes are bytes, times are RFC 3339.
 */
export type Upload = {
    id: string;
    file_id: string;
    collection: string;
    state: UploadState;
    method: "single" | "multipart";
    size: number;
    part_size: number;
    part_count: number;
    checksum: Checksum;
    uploaded_parts?: number | undefined;
    uploaded_bytes?: number | undefined;
    expires_at: string;
    reason?: Reason | undefined;
    file?: FileRecord | undefined;
    /**
     * nothing to send: the file exists
     */
    instant?: boolean | undefined;
    resumed?: boolean | undefined;
    parts?: SignedPart[] | undefined;
    parts_expire_at?: string | undefined;
};
/**
 * The JSON that clients and the server exchange: client/wire of the repository, whose
 * golden files the tests of this package read. Types only; nothing is exported at run
 * time. Sizes are bytes, times are RFC 3339.
 */
export type Reason = {
    code: string;
    message: string;
};
/**
 * one request to send as it is
 */
export type SignedPart = {
    number: number;
    size: number;
    method: string;
    url: string;
    headers: Record<string, string>;
};
/**
 * The JSON that clients and the server exchange: client/wire of the repository, whose
 * golden files the tests of this package read. Types only; nothing is exported at run
 * time. Sizes are bytes, times are RFC 3339.
 */
export type PartToSign = {
    number: number;
    /**
     * base64; pins the bytes
     */
    checksum?: string | undefined;
};
/**
 * The JSON that clients and the server exchange: client/wire of the repository, whose
 * golden files the tests of this package read. Types only; nothing is exported at run
 * time. Sizes are bytes, times are RFC 3339.
 */
export type SignRequest = {
    parts?: PartToSign[] | undefined;
    from?: number | undefined;
    to?: number | undefined;
};
/**
 * The JSON that clients and the server exchange: client/wire of the repository, whose
 * golden files the tests of this package read. Types only; nothing is exported at run
 * time. Sizes are bytes, times are RFC 3339.
 */
export type SignResponse = {
    parts: SignedPart[];
    expires_at: string;
};
/**
 * as S3 holds it
 */
export type Part = {
    number: number;
    size: number;
    etag: string;
    checksum?: string | undefined;
};
/**
 * The JSON that clients and the server exchange: client/wire of the repository, whose
 * golden files the tests of this package read. Types only; nothing is exported at run
 * time. Sizes are bytes, times are RFC 3339.
 */
export type PartsResponse = {
    parts: Part[];
    /**
     * ranges of part numbers
     */
    missing: [number, number][];
};
/**
 * The JSON that clients and the server exchange: client/wire of the repository, whose
 * golden files the tests of this package read. Types only; nothing is exported at run
 * time. Sizes are bytes, times are RFC 3339.
 */
export type CompletePart = {
    number: number;
    etag?: string | undefined;
    checksum?: string | undefined;
};
/**
 * The JSON that clients and the server exchange: client/wire of the repository, whose
 * golden files the tests of this package read. Types only; nothing is exported at run
 * time. Sizes are bytes, times are RFC 3339.
 */
export type CompleteRequest = {
    parts?: CompletePart[] | undefined;
    checksum?: Checksum | undefined;
};
/**
 * The JSON that clients and the server exchange: client/wire of the repository, whose
 * golden files the tests of this package read. Types only; nothing is exported at run
 * time. Sizes are bytes, times are RFC 3339.
 */
export type CommitRequest = {
    name: string;
    content_type?: string | undefined;
    metadata?: unknown;
};
/**
 * The JSON that clients and the server exchange: client/wire of the repository, whose
 * golden files the tests of this package read. Types only; nothing is exported at run
 * time. Sizes are bytes, times are RFC 3339.
 */
export type FileState = "preparing" | "processing" | "active" | "blocked" | "failed" | "deleting" | "delete_failed" | "deleted";
/**
 * The JSON that clients and the server exchange: client/wire of the repository, whose
 * golden files the tests of this package read. Types only; nothing is exported at run
 * time. Sizes are bytes, times are RFC 3339.
 */
export type FileRecord = {
    id: string;
    collection: string;
    name: string;
    size: number;
    content_type: string;
    checksum: Checksum;
    part_size?: number | undefined;
    state: FileState;
    metadata: unknown;
    /**
     * the file that this one is derived from
     */
    parent?: string | undefined;
    version_id?: string | undefined;
    created_at: string;
    activated_at?: string | undefined;
    reason?: Reason | undefined;
};
/**
 * The JSON that clients and the server exchange: client/wire of the repository, whose
 * golden files the tests of this package read. Types only; nothing is exported at run
 * time. Sizes are bytes, times are RFC 3339.
 */
export type PatchRequest = {
    name?: string | undefined;
    metadata?: unknown;
};
/**
 * The JSON that clients and the server exchange: client/wire of the repository, whose
 * golden files the tests of this package read. Types only; nothing is exported at run
 * time. Sizes are bytes, times are RFC 3339.
 */
export type FileList = {
    files: FileRecord[];
    next_cursor?: string | undefined;
};
/**
 * a presigned GET of exactly one version
 */
export type ContentURL = {
    url: string;
    method: string;
    expires_at: string;
    size: number;
    checksum: Checksum;
    part_size?: number | undefined;
    version_id: string;
};
/**
 * The JSON that clients and the server exchange: client/wire of the repository, whose
 * golden files the tests of this package read. Types only; nothing is exported at run
 * time. Sizes are bytes, times are RFC 3339.
 */
export type HistoryEntry = {
    at: string;
    what: string;
    id: string;
    from?: string | undefined;
    to: string;
    actor: string;
    why?: string | undefined;
    version_id?: string | undefined;
};
/**
 * The JSON that clients and the server exchange: client/wire of the repository, whose
 * golden files the tests of this package read. Types only; nothing is exported at run
 * time. Sizes are bytes, times are RFC 3339.
 */
export type History = {
    history: HistoryEntry[];
    next_cursor?: string | undefined;
};
/**
 * RFC 9457, with the details of its code beside these members
 */
export type Problem = {
    type: string;
    title: string;
    status: number;
    detail?: string | undefined;
    code: string;
    request_id?: string | undefined;
};
