/** How clients of ms-enclave's server read a refusal: they tell four statuses apart, and read `detail` of each. */
import { ERRORS, type ErrorCode } from '../../../shared/errors.ts';
import type { Dialect } from '../adapter-route.ts';
import { apiKeyAuthorization, basicAuthorization } from '../token.ts';

const NOT_FOUND = 404;
const UNPROCESSABLE = 422;

export const MS_ENCLAVE: Dialect = {
  authorizationOf: (headers) => basicAuthorization(headers) ?? apiKeyAuthorization(headers),
  statusOf: (code: ErrorCode) => {
    if (code === 'session_deleted') return NOT_FOUND;
    const { status } = ERRORS[code];
    return status === 400 ? UNPROCESSABLE : status;
  },
};

/** Every path of the adapter begins with it, so the base URL of their configuration ends with it. */
export const MS_ENCLAVE_PATH = '/ms-enclave';
