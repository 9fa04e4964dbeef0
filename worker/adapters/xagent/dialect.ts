/** How clients of XAgent's ToolServer read a refusal: by a status of their own list. */
import { ERRORS, type ErrorCode } from '../../../shared/errors.ts';
import type { Dialect } from '../adapter-route.ts';
import { basicAuthorization } from '../token.ts';

const FORMAT_ERROR = 422;
const SERVER_ERROR = 503;

export const XAGENT: Dialect = {
  authorizationOf: basicAuthorization,
  statusOf: (code: ErrorCode) => {
    const { status } = ERRORS[code];
    if (status === 400 || status === 413 || status === 415) return FORMAT_ERROR;
    // They try again after a 503 only.
    return code === 'queue_full' || status === 504 || status === 507 ? SERVER_ERROR : status;
  },
};

/** Every path of the adapter begins with it, so the URL of their configuration ends with it. */
export const XAGENT_PATH = '/xagent';
