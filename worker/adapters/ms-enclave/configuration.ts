/** A sandbox as ms-enclave's clients configure one, and what of it a session of ours has. */
import * as z from 'zod';
import { failure, type Outcome, success } from '../../../shared/errors.ts';
import { type CreateSession, CreateSessionSchema } from '../../../shared/session.ts';

export const SandboxTypeSchema = z.enum(['docker', 'docker_notebook', 'volcengine', 'dummy']);
export type SandboxType = z.infer<typeof SandboxTypeSchema>;

/** What their client sends where nobody chose anything: no wish for a size. */
const THEIR_DEFAULTS = { memory_limit: '4g', cpu_limit: 2 };
const KIB = 1024;
const FACTORS: Readonly<Record<string, number>> = { '': 1, k: KIB, m: KIB ** 2, g: KIB ** 3 };
/** Theirs live until they are deleted. */
const IDLE_TIMEOUT_S = 3_600;
const MAX_METADATA_CHARACTERS = 4_096;

export const SandboxConfigSchema = z.looseObject({
  image: z.string().min(1).max(512).nullish(),
  timeout: z.number().positive().max(3_600).nullish(),
  tools_config: z
    .union([z.array(z.string().max(128)), z.record(z.string().max(128), z.unknown())])
    .default({}),
  env_vars: z.record(z.string(), z.string()).default({}),
  memory_limit: z
    .string()
    .regex(/^\d{1,12}[kmgKMG]?$/)
    .nullish(),
  cpu_limit: z.number().positive().nullish(),
  volumes: z.record(z.string(), z.unknown()).nullish(),
  ports: z.record(z.string(), z.unknown()).nullish(),
  privileged: z.boolean().nullish(),
});
export type SandboxConfig = z.infer<typeof SandboxConfigSchema>;

/** Kept with the session, so that its sandbox can be shown as it was asked for. */
export const METADATA = {
  type: 'ms-enclave.type',
  tools: 'ms-enclave.tools',
  timeout: 'ms-enclave.timeout',
  pool: 'ms-enclave.pool',
} as const;

export function sessionRequest(
  config: SandboxConfig,
  about: { type: SandboxType; isOfPool?: boolean },
): Outcome<CreateSession> {
  const refused = refusedWish(config);
  if (refused !== undefined) return failure('invalid_request', refused);
  const tools = toolNames(config);
  const metadata: Record<string, string> = {
    [METADATA.type]: about.type,
    [METADATA.tools]: JSON.stringify(tools),
    ...(typeof config.timeout === 'number' ? { [METADATA.timeout]: String(config.timeout) } : {}),
    ...(about.isOfPool === true ? { [METADATA.pool]: 'yes' } : {}),
  };
  if ((metadata[METADATA.tools]?.length ?? 0) > MAX_METADATA_CHARACTERS) {
    return failure('invalid_request', 'tools_config: too many tools');
  }
  const parsed = CreateSessionSchema.safeParse({
    image: imageName(config.image ?? 'python'),
    limits: limitsOf(config),
    env: config.env_vars,
    metadata,
    idle_timeout_s: IDLE_TIMEOUT_S,
  });
  if (parsed.success) return success(parsed.data);
  return failure('invalid_request', z.prettifyError(parsed.error));
}

export function toolNames({ tools_config }: SandboxConfig): string[] {
  return Array.isArray(tools_config) ? tools_config : Object.keys(tools_config);
}

/** What would silently not be there is refused instead. */
function refusedWish({ volumes, ports, privileged }: SandboxConfig): string | undefined {
  if (Object.keys(volumes ?? {}).length > 0) {
    return 'volumes: folders of a host cannot be mounted; send them with POST /sandbox/{id}/archive';
  }
  if (Object.keys(ports ?? {}).length > 0) return 'ports: a sandbox takes no connections from outside';
  return privileged === true ? 'privileged: a sandbox has no privileges' : undefined;
}

/** `registry/python:3.11-slim` is the image `python` of the pool; a digest stays. Their notebook is its kernel. */
export function imageName(image: string): string {
  if (/^sha256:[0-9a-f]{64}$/.test(image)) return image;
  const name = (image.split('/').at(-1) ?? image).replace(/[:@].*$/, '').toLowerCase();
  return name === 'jupyter-kernel-gateway' ? 'python' : name;
}

function limitsOf({ memory_limit, cpu_limit }: SandboxConfig): { memory_bytes?: number; cpus?: number } {
  const [, digits = '0', unit = ''] = /^(\d+)([kmg]?)$/i.exec(memory_limit ?? '') ?? [];
  const isMemoryWished = (memory_limit ?? THEIR_DEFAULTS.memory_limit) !== THEIR_DEFAULTS.memory_limit;
  const areCpusWished = (cpu_limit ?? THEIR_DEFAULTS.cpu_limit) !== THEIR_DEFAULTS.cpu_limit;
  return {
    ...(isMemoryWished ? { memory_bytes: Number(digits) * (FACTORS[unit.toLowerCase()] ?? 1) } : {}),
    ...(areCpusWished && typeof cpu_limit === 'number' ? { cpus: cpu_limit } : {}),
  };
}
