/** A part's request, and when by our own clock it stops being good. */
export class SignedURL {
    /**
     * @param {import("./wire.js").SignedPart} part
     * @param {number} asked
     * @param {number} until  both in milliseconds of our own clock
     */
    constructor(part: import("./wire.js").SignedPart, asked: number, until: number);
    part: import("./wire.js").SignedPart;
    used: boolean;
    last: number;
    /**
     * Whether it is worth sending with. A new one always is, once: clocks that disagree
     * must not keep us asking for ever.
     */
    fresh(): boolean;
    /** Whether S3 may well call it expired. */
    expired(): boolean;
}
export class Signer {
    /**
     * @param {import("./api.js").Api} api
     * @param {string} upload
     * @param {AbortSignal} signal  of the whole transfer
     */
    constructor(api: import("./api.js").Api, upload: string, signal: AbortSignal);
    api: import("./api.js").Api;
    upload: string;
    signal: AbortSignal;
    /** @type {{ part: import("./wire.js").PartToSign, resolve: (url: SignedURL) => void, reject: (err: unknown) => void }[]} */
    queue: {
        part: import("./wire.js").PartToSign;
        resolve: (url: SignedURL) => void;
        reject: (err: unknown) => void;
    }[];
    busy: boolean;
    /**
     * @param {number} number
     * @param {string} checksum  base64
     * @returns {Promise<SignedURL>}
     */
    sign(number: number, checksum: string): Promise<SignedURL>;
    #private;
}
