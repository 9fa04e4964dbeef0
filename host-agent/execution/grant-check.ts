/** What a host checks of a grant beyond its signature: against what it has seen, what it has, and its own caps. */
import type * as z from 'zod';
import { constraintViolations } from '../../shared/argument-constraint.ts';
import { PROGRAM_ARGUMENTS } from '../../shared/code-mode.ts';
import { type Failure, failure, type Outcome, success } from '../../shared/errors.ts';
import type { GrantClaims, Relay } from '../../shared/grant.ts';
import { type ResourceLimits, WORKDIR } from '../../shared/session.ts';
import { BUILT_IN_TOOLS, type ToolName, ToolNameSchema } from '../../shared/tool.ts';

/** The session of the link on which a grant came, as it was attached. */
export interface SessionBinding {
  sessionId: string;
  tenant: string;
  epoch: number;
  image: string;
  limits: ResourceLimits;
  /** Of a sandbox that was made of a snapshot: what its guest reads as its generation. */
  generation?: number;
  /** `egress` of the attach grant; unknown where there is no sandbox any more. */
  egress?: string;
}

/** Whether the grant is of this session, of its current epoch, and of these payload bytes. */
export function checkBinding(
  claims: GrantClaims,
  session: Pick<SessionBinding, 'sessionId' | 'tenant' | 'epoch'>,
  payloadSha256: string,
): Outcome<null> {
  if (claims.sid !== session.sessionId) return failure('wrong_session', 'sid is another session');
  if (claims.tenant !== session.tenant) return failure('wrong_session', 'tenant is another tenant');
  if (claims.epoch !== session.epoch) {
    return failure('fenced', `epoch is ${claims.epoch}, this sandbox is of ${session.epoch}`);
  }
  return checkPayload(claims, payloadSha256);
}

export function checkPayload(claims: GrantClaims, payloadSha256: string): Outcome<null> {
  if (claims.args_sha256 === payloadSha256) return success(null);
  return failure('args_mismatch', 'the payload does not hash to args_sha256');
}

export function checkSequence(claims: GrantClaims, highestSeq: number): Outcome<null> {
  if (claims.seq >= highestSeq) return success(null);
  return failure('fenced', `seq is ${claims.seq}, ${highestSeq} was seen`);
}

export interface ExecuteRequest {
  executionId: string;
  tool: ToolName;
  toolVersion: string;
  relay: Relay;
  stdin: boolean;
  arguments: unknown;
}

/** The tool call that an execute grant allows, of payload bytes that hash to it. */
export function checkExecute(
  claims: GrantClaims,
  session: SessionBinding,
  payload: Uint8Array,
): Outcome<ExecuteRequest> {
  if (claims.exec === null || claims.relay === null || claims.stdin === null) {
    return failure('grant_invalid', 'an execute grant names exec, relay and stdin');
  }
  if (claims.image !== session.image) return failure('image_refused', 'image is not that of the sandbox');
  if (session.egress !== undefined && claims.egress !== session.egress) {
    return failure('egress_refused', 'egress is not that of the sandbox');
  }
  const tool = ToolNameSchema.safeParse(claims.tool);
  if (!tool.success) return failure('tool_refused', 'tool is not one of this host');
  const { version } = BUILT_IN_TOOLS[tool.data];
  if (claims.tool_version !== version) {
    return failure('tool_refused', `${tool.data} is here in version ${version}`);
  }
  const exceeded = exceededLimit(claims.limits, session.limits);
  if (exceeded !== undefined) return failure('limits_exceeded', `${exceeded} is above that of the sandbox`);
  const parsed = parseArguments(tool.data, payload);
  if (!parsed.ok) return parsed;
  const held = checkConstraints(claims, parsed.value);
  if (!held.ok) return held;
  return success({
    executionId: claims.exec,
    tool: tool.data,
    toolVersion: version,
    relay: claims.relay,
    stdin: claims.stdin,
    arguments: parsed.value,
  });
}

/** Once more what the edge looked at: an edge that is deceived, or at fault, does not carry it past the host. */
export function checkConstraints({ constraints = [] }: GrantClaims, args: unknown): Outcome<null> {
  const place = { root: 'arguments', workdir: WORKDIR };
  const [violation] = constraintViolations(constraints, args, place);
  if (violation === undefined) return success(null);
  return failure('policy_refused', `${violation.path}: expected ${violation.expected}`);
}

function parseArguments(tool: ToolName, payload: Uint8Array): Outcome<unknown> {
  let json: unknown;
  try {
    json = JSON.parse(new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(payload));
  } catch {
    return failure('invalid_request', 'the arguments are not JSON in UTF-8');
  }
  const parsed = argumentsSchema(tool).safeParse(json);
  if (parsed.success) return success(parsed.data);
  const issue = parsed.error.issues[0];
  return failure('invalid_request', `arguments.${issue?.path.join('.') ?? ''}: ${issue?.message ?? 'wrong'}`);
}

/** Of the kernels those of a program too, which nobody can give who calls the tool. */
function argumentsSchema(tool: ToolName): z.ZodType {
  if (tool === 'python' || tool === 'node') return PROGRAM_ARGUMENTS[tool];
  return BUILT_IN_TOOLS[tool].arguments;
}

/** Whether a sandbox with these claims may be made here. */
export function checkAttach(
  claims: GrantClaims,
  host: { images: readonly { digest: string }[]; caps: ResourceLimits; highestEpoch: number },
): Failure | undefined {
  if (claims.epoch <= host.highestEpoch) {
    return failure('fenced', `epoch is ${claims.epoch}, ${host.highestEpoch} was seen`);
  }
  if (!host.images.some((image) => image.digest === claims.image)) {
    return failure('image_refused', 'no image with this digest on this host');
  }
  const exceeded = exceededLimit(claims.limits, host.caps);
  if (exceeded !== undefined) return failure('limits_exceeded', `${exceeded} is above what this host allows`);
  return undefined;
}

const LIMIT_NAMES = ['cpus', 'memory_bytes', 'processes', 'workspace_bytes', 'tmp_bytes'] as const;

function exceededLimit(asked: ResourceLimits, cap: ResourceLimits): string | undefined {
  return LIMIT_NAMES.find((name) => asked[name] > cap[name]);
}
