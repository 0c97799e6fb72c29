/**
 * The JSON that clients and the server exchange: client/wire of the repository, whose
 * golden files the tests of this package read. Types only; nothing is exported at run
 * time. Sizes are bytes, times are RFC 3339.
 *
 * @typedef {"sha256" | "crc64nvme" | "crc32c"} Algorithm
 *
 * @typedef {object} Checksum
 * @property {Algorithm | ""} algorithm  "" in a request: the collection's
 * @property {"full_object" | "composite"} [type]
 * @property {string} [value]  base64; a composite ends in "-" and the number of parts
 * @property {boolean} [declared]  in answers: the client stated the value
 *
 * @typedef {object} OpenRequest
 * @property {string} collection
 * @property {string} name
 * @property {number} size
 * @property {string} [content_type]
 * @property {Checksum} [checksum]
 * @property {unknown} [metadata]
 * @property {"auto" | "deferred"} [commit]
 * @property {boolean} [continue]  go on with an open upload of the same identity
 * @property {string} [parent]
 *
 * @typedef {"init" | "uploading" | "completing" | "completed" | "committed" | "rejected" | "aborted" | "expired"} UploadState
 *
 * @typedef {object} Upload
 * @property {string} id
 * @property {string} file_id
 * @property {string} collection
 * @property {UploadState} state
 * @property {"single" | "multipart"} method
 * @property {number} size
 * @property {number} part_size
 * @property {number} part_count
 * @property {Checksum} checksum
 * @property {number} [uploaded_parts]
 * @property {number} [uploaded_bytes]
 * @property {string} expires_at
 * @property {Reason} [reason]
 * @property {FileRecord} [file]
 * @property {boolean} [instant]  nothing to send: the file exists
 * @property {boolean} [resumed]
 * @property {SignedPart[]} [parts]
 * @property {string} [parts_expire_at]
 *
 * @typedef {object} Reason
 * @property {string} code
 * @property {string} message
 *
 * @typedef {object} SignedPart  one request to send as it is
 * @property {number} number
 * @property {number} size
 * @property {string} method
 * @property {string} url
 * @property {Record<string, string>} headers
 *
 * @typedef {object} PartToSign
 * @property {number} number
 * @property {string} [checksum]  base64; pins the bytes
 *
 * @typedef {object} SignRequest
 * @property {PartToSign[]} [parts]
 * @property {number} [from]
 * @property {number} [to]
 *
 * @typedef {object} SignResponse
 * @property {SignedPart[]} parts
 * @property {string} expires_at
 *
 * @typedef {object} Part  as S3 holds it
 * @property {number} number
 * @property {number} size
 * @property {string} etag
 * @property {string} [checksum]
 *
 * @typedef {object} PartsResponse
 * @property {Part[]} parts
 * @property {[number, number][]} missing  ranges of part numbers
 *
 * @typedef {object} CompletePart
 * @property {number} number
 * @property {string} [etag]
 * @property {string} [checksum]
 *
 * @typedef {object} CompleteRequest
 * @property {CompletePart[]} [parts]
 * @property {Checksum} [checksum]
 *
 * @typedef {object} CommitRequest
 * @property {string} name
 * @property {string} [content_type]
 * @property {unknown} [metadata]
 *
 * @typedef {"preparing" | "processing" | "active" | "blocked" | "failed" | "deleting" | "delete_failed" | "deleted"} FileState
 *
 * @typedef {object} FileRecord
 * @property {string} id
 * @property {string} collection
 * @property {string} name
 * @property {number} size
 * @property {string} content_type
 * @property {Checksum} checksum
 * @property {number} [part_size]
 * @property {FileState} state
 * @property {unknown} metadata
 * @property {string} [parent]  the file that this one is derived from
 * @property {string} [version_id]
 * @property {string} created_at
 * @property {string} [activated_at]
 * @property {Reason} [reason]
 *
 * @typedef {object} PatchRequest
 * @property {string} [name]
 * @property {unknown} [metadata]
 *
 * @typedef {object} FileList
 * @property {FileRecord[]} files
 * @property {string} [next_cursor]
 *
 * @typedef {object} ContentURL  a presigned GET of exactly one version
 * @property {string} url
 * @property {string} method
 * @property {string} expires_at
 * @property {number} size
 * @property {Checksum} checksum
 * @property {number} [part_size]
 * @property {string} version_id
 *
 * @typedef {object} HistoryEntry
 * @property {string} at
 * @property {string} what
 * @property {string} id
 * @property {string} [from]
 * @property {string} to
 * @property {string} actor
 * @property {string} [why]
 * @property {string} [version_id]
 *
 * @typedef {object} History
 * @property {HistoryEntry[]} history
 * @property {string} [next_cursor]
 *
 * @typedef {object} Problem  RFC 9457, with the details of its code beside these members
 * @property {string} type
 * @property {string} title
 * @property {number} status
 * @property {string} [detail]
 * @property {string} code
 * @property {string} [request_id]
 */
export {};
