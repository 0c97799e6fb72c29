/** Runs in the page: Uppy with the options, and handles on window for the tests. */
export function install({ multipart, options }) {
  const uppy = new window.Uppy({ autoProceed: false }).use(window.AwsS3, { shouldUseMultipart: multipart, ...options })
  const bodies = new Map()
  let running
  let seed = 1

  const short = (result) => ({
    successful: (result?.successful ?? []).map((f) => ({ name: f.name, location: f.response?.body?.location ?? f.uploadURL, key: f.response?.body?.key })),
    failed: (result?.failed ?? []).map((f) => ({ name: f.name, error: String(f.error) })),
  })
  const progress = () => Math.max(0, ...uppy.getFiles().map((f) => f.progress.bytesUploaded || 0))
  const when = (bytes) => new Promise((resolve) => {
    const look = () => {
      if (progress() < bytes) return
      uppy.off('upload-progress', look)
      resolve()
    }
    uppy.on('upload-progress', look)
    look()
  })

  Object.assign(window, {
    uppy,
    progress,
    add(list) {
      for (const { name, size } of list) {
        const bytes = new Uint8Array(size)
        let x = (seed++ * 2654435761) >>> 0 || 1
        for (let i = 0; i < size; i++) {
          x ^= x << 13
          x ^= x >>> 17
          x ^= x << 5
          bytes[i] = x
        }
        const data = new File([bytes], name, { type: 'text/plain' })
        bodies.set(name, data)
        uppy.addFile({ name, type: data.type, data })
      }
    },
    begin() {
      running = uppy.upload()
      running.catch(() => {})
    },
    async upload() {
      window.begin()
      return short(await running)
    },
    async pauseAfter(bytes) {
      await when(bytes)
      uppy.pauseAll()
    },
    async resume() {
      uppy.resumeAll()
      return short(await running)
    },
    async cancelAfter(bytes) {
      await when(bytes)
      uppy.cancelAll()
    },
    async retry() {
      return short(await uppy.retryAll())
    },
    async sha256(name) {
      const sum = await crypto.subtle.digest('SHA-256', await bodies.get(name).arrayBuffer())
      return [...new Uint8Array(sum)].map((b) => b.toString(16).padStart(2, '0')).join('')
    },
  })
}
