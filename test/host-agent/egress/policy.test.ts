import { describe, expect, test } from 'vitest';
import * as z from 'zod';
import { compilePolicy, decide, refusedByHost } from '../../../host-agent/egress/policy.ts';
import {
  DEFAULT_EGRESS_SETTINGS,
  EGRESS_ENVIRONMENT,
  egressSettings,
} from '../../../host-agent/egress/settings.ts';
import { parseAuthority, parseHttpTarget } from '../../../host-agent/egress/target.ts';
import { NetworkSchema } from '../../../shared/network.ts';

const verdict = (allow: string[], authority: string): string => {
  const target = parseAuthority(authority, null);
  if (target === undefined) return 'malformed';
  const decision = decide(compilePolicy(NetworkSchema.parse({ allow })), target);
  return decision.allowed ? decision.rule : decision.reason;
};

describe('the rules of a session', () => {
  test.each([
    [['pypi.org'], 'pypi.org:443', 'pypi.org'],
    [['pypi.org'], 'pypi.org:80', 'pypi.org'],
    [['pypi.org'], 'pypi.org:8080', 'port'],
    [['pypi.org'], 'PyPI.ORG:443', 'pypi.org'],
    [['pypi.org'], 'pypi.org.:443', 'pypi.org'],
    [['PyPI.org.'], 'pypi.org:443', 'PyPI.org.'],
    [['pypi.org'], 'pypi.org..:443', 'malformed'],
    [['pypi.org'], 'pypi.org.evil.com:443', 'not_listed'],
    [['pypi.org'], 'evilpypi.org:443', 'not_listed'],
    [['pypi.org'], 'files.pypi.org:443', 'not_listed'],
    [['pypi.org'], 'pypi.org@evil.com:443', 'malformed'],
    [['pypi.org'], 'pypi.org#.evil.com:443', 'malformed'],
    [['pypi.org'], 'pypi.org%00.evil.com:443', 'malformed'],
    [['pypi.org'], 'pypi.org\u0000:443', 'malformed'],
    [['pypi.org'], 'pypi.org:443:80', 'malformed'],
    [['pypi.org'], 'pypi.org:00443', 'pypi.org'],
    [['pypi.org'], 'pypi.org:+443', 'malformed'],
    [['pypi.org'], 'рypi.org:443', 'malformed'],
    [['pypi.org'], 'xn--ypi-2ed.org:443', 'not_listed'],
    [['*.example.com'], 'a.example.com:443', '*.example.com'],
    [['*.example.com'], 'a.b.example.com:443', '*.example.com'],
    [['*.example.com'], 'example.com:443', 'not_listed'],
    [['*.example.com'], 'aexample.com:443', 'not_listed'],
    [['*.example.com'], '.example.com:443', 'malformed'],
    [['*.example.com'], 'a.example.com.evil.com:443', 'not_listed'],
    [['*.example.com:443'], 'a.example.com:80', 'port'],
    [['*.example.com:8443'], 'a.example.com:8443', '*.example.com:8443'],
    [['bücher.example.com'], 'xn--bcher-kva.example.com:443', 'bücher.example.com'],
    [['bücher.example.com'], 'bucher.example.com:443', 'not_listed'],
    [['*'], 'anything.example.org:443', '*'],
    [['*'], 'anything.example.org:25', 'port'],
    [['*'], 'anything.example.org:22', 'port'],
    [['*:22'], 'anything.example.org:22', '*:22'],
    [['*'], '8.8.8.8:443', 'address_literal'],
    [['*'], '[2606:4700::1111]:443', 'address_literal'],
    [['8.8.8.8'], '8.8.8.8:443', '8.8.8.8'],
    [['8.8.8.8'], '8.8.8.9:443', 'address_literal'],
    [['8.8.8.8'], '134744072:443', 'malformed'],
    [['8.8.8.8'], '0x8.8.8.8:443', 'malformed'],
    [['8.8.8.8'], '010.8.8.8:443', 'malformed'],
    [['8.8.8.8'], '8.8.2056:443', 'malformed'],
    [['8.8.8.8'], '8.8.8.8.:443', 'malformed'],
    [['8.8.8.8'], '[::ffff:8.8.8.8]:443', 'address_literal'],
    [['[2606:4700::1111]'], '[2606:4700:0:0::1111]:443', '[2606:4700::1111]'],
    [['[2606:4700::1111]:8443'], '[2606:4700::1111]:443', 'port'],
    [['a.test', 'b.test:8080'], 'b.test:8080', 'b.test:8080'],
  ])('%j: %s gives %s', (allow, authority, expected) => {
    expect(verdict(allow, authority)).toBe(expected);
  });
});

describe('the URL of a plain request', () => {
  test.each([
    ['http://a.test', 'a.test', 80, '/'],
    ['http://a.test/', 'a.test', 80, '/'],
    ['HTTP://A.test:8080/x?y', 'a.test', 8080, '/x?y'],
    ['http://a.test?x', 'a.test', 80, '/?x'],
    ['http://[2606:4700::1111]:8080/', '2606:4700::1111', 8080, '/'],
  ])('%s is read', (url, host, port, path) => {
    expect(parseHttpTarget(url)).toMatchObject({ target: { host, port }, path });
  });

  test.each([
    'http://a.test#x',
    'http://',
    'http:a.test',
    'http:///a.test',
    'http://a b/',
    '//a.test/',
    'http:\\\\a.test\\',
  ])('%s is none', (url) => {
    expect(parseHttpTarget(url)).toBeUndefined();
  });
});

describe('what the operator says', () => {
  const settings = (environment: Record<string, string>) =>
    egressSettings(z.object(EGRESS_ENVIRONMENT).parse(environment));
  const refused = (allow: string[], environment: Record<string, string>): string | undefined =>
    refusedByHost(NetworkSchema.parse({ allow }), settings(environment))?.code;

  test('is by default: what the rules of a session name, by public addresses', () => {
    expect(settings({})).toEqual(DEFAULT_EGRESS_SETTINGS);
    expect(refused(['pypi.org', '*'], {})).toBeUndefined();
  });

  test('may be: no way out at all', () => {
    expect(refused(['pypi.org'], { SANDGATE_EGRESS: 'none' })).toBe('egress_refused');
  });

  test.each([
    [['pypi.org'], undefined],
    [['files.pypi.org', '*.files.pypi.org'], undefined],
    [['*.pypi.org:443'], undefined],
    [['api.example.com:8443'], undefined],
    [['8.8.8.8:53'], undefined],
    [['api.example.com'], 'egress_refused'],
    [['pypi.org:8080'], 'egress_refused'],
    [['example.com'], 'egress_refused'],
    [['*.example.com'], 'egress_refused'],
    [['*'], 'egress_refused'],
    [['8.8.8.8'], 'egress_refused'],
    [['pypi.org', 'evil.test'], 'egress_refused'],
  ])('may be a list that those of a session must be covered by: %j', (allow, code) => {
    const environment = { SANDGATE_EGRESS_ALLOW: 'pypi.org, *.pypi.org, api.example.com:8443, 8.8.8.8:53' };
    expect(refused(allow, environment)).toBe(code);
  });

  test('names hosts of its own with their addresses', () => {
    const { hosts } = settings({
      SANDGATE_EGRESS_HOSTS: 'Internal.Example.com=10.0.0.7,internal.example.com=::1, b=1.2.3.4',
    });
    expect([...hosts]).toEqual([
      ['internal.example.com', ['10.0.0.7', '::1']],
      ['b', ['1.2.3.4']],
    ]);
  });

  test.each([
    { SANDGATE_EGRESS_HOSTS: 'a' },
    { SANDGATE_EGRESS_HOSTS: 'a=b' },
    { SANDGATE_EGRESS_HOSTS: 'a=10.0.0.1=x' },
    { SANDGATE_EGRESS_HOSTS: 'a b=10.0.0.1' },
    { SANDGATE_EGRESS_ALLOW: 'http://pypi.org' },
    { SANDGATE_EGRESS_ALLOW: '*.org' },
    { SANDGATE_EGRESS: 'yes' },
    { SANDGATE_EGRESS_MAX_BYTES: '0' },
    { SANDGATE_EGRESS_BYTES_PER_S: '0' },
    { SANDGATE_EGRESS_HOST_BYTES_PER_S: '1.5' },
  ])('is refused where it cannot be meant: %j', (environment) => {
    expect(z.object(EGRESS_ENVIRONMENT).safeParse(environment).success).toBe(false);
  });
});
