/** Where tools and webhooks may send requests. A Worker cannot see which address a name has, so only names decide. */
/** Names that lead inside: by convention, or reserved. */
const INNER_SUFFIXES = [
  'localhost',
  'local',
  'internal',
  'intranet',
  'private',
  'corp',
  'home',
  'lan',
  'localdomain',
  'home.arpa',
  'in-addr.arpa',
  'ip6.arpa',
  'invalid',
  'test',
  'onion',
  'cluster.local',
];

export interface AddressRules {
  /** Of this edge: a tool must not call it with the edge's own standing. */
  ownOrigin: string;
  allowedOrigins: ReadonlySet<string>;
}

export function addressRules({
  origin,
  httpToolOrigins,
}: {
  origin: string;
  httpToolOrigins: ReadonlySet<string>;
}): AddressRules {
  return { ownOrigin: origin, allowedOrigins: httpToolOrigins };
}

/** What tools may reach inside is not open to messages. */
export function webhookAddressRules({
  origin,
  webhookOrigins,
}: {
  origin: string;
  webhookOrigins: ReadonlySet<string>;
}): AddressRules {
  return { ownOrigin: origin, allowedOrigins: webhookOrigins };
}

/** Of a host, also where a port follows. */
const DOTS_AT_END = /\.+(?=$|:\d+$)/;

/** What is wrong with the address, or nothing. */
export function addressFault(url: URL, { ownOrigin, allowedOrigins }: AddressRules): string | undefined {
  if (url.username !== '' || url.password !== '') return 'an address without user and password';
  // With dots at its end a name is the same, and its origin another text.
  if (url.origin.replace(DOTS_AT_END, '') === ownOrigin) return 'an address that is not this gateway';
  if (allowedOrigins.has(url.origin)) return undefined;
  if (url.protocol !== 'https:') return 'https';
  if (url.port !== '') return 'the port of https';
  return hostFault(url.hostname.toLowerCase().replace(DOTS_AT_END, ''));
}

function hostFault(host: string): string | undefined {
  const labels = host.split('.');
  const isAddress = host.startsWith('[') || /^[0-9]/.test(labels.at(-1) ?? '');
  if (isAddress) return 'a name, not an IP address';
  if (labels.length < 2) return 'a public name';
  return INNER_SUFFIXES.some((suffix) => host === suffix || host.endsWith(`.${suffix}`))
    ? 'a public name'
    : undefined;
}

const PLACEHOLDER = /\{([^{}]*)\}/g;
/** Scheme and host are written out: an argument must not choose whom the credentials go to. */
const TEMPLATE = /^https?:\/\/[^{}/?#\\@]+(?:[/?][^#]*)?$/;

/** What is wrong with the template of an address, or nothing. */
export function templateFault(template: string, rules: AddressRules): string | undefined {
  if (!TEMPLATE.test(template)) return 'an https address whose host has no placeholder';
  const url = URL.parse(template.replaceAll(PLACEHOLDER, 'x'));
  return url === null ? 'an address' : addressFault(url, rules);
}

/** Whom the requests of a template go to: it has no placeholder there. */
export function templateOrigin(template: string): string | undefined {
  return URL.parse(template.replaceAll(PLACEHOLDER, 'x'))?.origin;
}

export type FilledAddress =
  | { ok: true; url: URL; used: ReadonlySet<string> }
  | { ok: false; name: string; expected: string };

/** Each value is one part of the address, whatever is in it. */
export function filledAddress(template: string, args: Readonly<Record<string, unknown>>): FilledAddress {
  const used = new Set<string>();
  let fault: { name: string; expected: string } | undefined;
  const filled = template.replaceAll(PLACEHOLDER, (_, name: string) => {
    used.add(name);
    const value = Object.hasOwn(args, name) ? args[name] : undefined;
    const isScalar = typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean';
    // A dot or two would be a step in the path, however they are written.
    if (!isScalar || value === '' || value === '.' || value === '..') {
      fault ??= { name, expected: 'text or a number: it is a part of the address' };
    }
    return encodeURIComponent(String(value));
  });
  const url = URL.parse(filled);
  if (fault !== undefined || url === null) return { ok: false, name: '', expected: 'an address', ...fault };
  return { ok: true, url, used };
}
