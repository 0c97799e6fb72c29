// Uppy as npm has it, for the page: unmodified.
import Uppy from '@uppy/core'
import AwsS3 from '@uppy/aws-s3'

Object.assign(globalThis, { Uppy, AwsS3 })
