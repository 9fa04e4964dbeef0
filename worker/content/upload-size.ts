/** How many bytes an upload may bring: as many as it says, and where it does not say it, a number that is reserved for it. */
const UNSIZED_UPLOAD_BYTES = 64 * 1024 * 1024;

/** HTTP itself ends a body at the length that it declared. */
export function uploadBytesOf(headers: Headers, unsizedBytes = UNSIZED_UPLOAD_BYTES): number {
  const length = headers.get('Content-Length');
  return length === null ? unsizedBytes : Number(length);
}
