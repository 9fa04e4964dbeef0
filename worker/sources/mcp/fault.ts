/** What the client for MCP servers throws, as what became of a call, in words for whose source it is. */
import {
  ProtocolError,
  SdkError,
  SdkErrorCode,
  SdkHttpError,
  UnauthorizedError,
  UnsupportedProtocolVersionError,
} from '@modelcontextprotocol/client';
import { isTimeout, NO_ANSWER, ownMessage, UNREACHABLE } from '../fault.ts';

const MAX_MESSAGE_CHARACTERS = 300;

export type Fault =
  | { kind: 'timeout' | 'cancelled' | 'lost'; message: string }
  /** The server answered, and says that it will not. */
  | { kind: 'refused'; message: string };

export function faultOfServer(error: unknown): Fault {
  const own = ownMessage(error);
  if (own !== undefined) return { kind: 'lost', message: own };
  if (error instanceof UnsupportedProtocolVersionError || isVersionError(error))
    return { kind: 'lost', message: 'unsupported protocol version' };
  if (error instanceof UnauthorizedError) return { kind: 'lost', message: 'the server answered 401' };
  if (error instanceof SdkHttpError) return { kind: 'lost', message: `the server answered ${error.status}` };
  if (error instanceof ProtocolError) {
    const said = printed(error.message);
    return { kind: 'refused', message: `the server answered with the error ${error.code}: ${said}` };
  }
  if (error instanceof SdkError) return sdkFault(error);
  if (error instanceof Error && error.name === 'AbortError')
    return { kind: 'cancelled', message: 'the call was given up' };
  if (isTimeout(error)) return { kind: 'timeout', message: NO_ANSWER };
  return { kind: 'lost', message: UNREACHABLE };
}

function sdkFault(error: SdkError): Fault {
  switch (error.code) {
    case SdkErrorCode.RequestTimeout:
      return { kind: 'timeout', message: NO_ANSWER };
    case SdkErrorCode.ConnectionClosed:
      return { kind: 'lost', message: 'the connection to the server ended' };
    case SdkErrorCode.InvalidResult:
      return { kind: 'refused', message: 'the answer of the server does not follow the protocol' };
    default:
      return { kind: 'lost', message: UNREACHABLE };
  }
}

function isVersionError(error: unknown): boolean {
  return error instanceof Error && /protocol version/i.test(error.message);
}

function printed(text: string): string {
  return text.replaceAll(/[\p{C}]+/gu, ' ').slice(0, MAX_MESSAGE_CHARACTERS);
}
