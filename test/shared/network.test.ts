import { describe, expect, test } from 'vitest';
import { egressClaim, NetworkSchema, networkView } from '../../shared/network.ts';

const secret = 'Bearer sk-0123456789abcdef';

describe('the network of a session', () => {
  test.each([
    { allow: ['pypi.org'] },
    { allow: ['*.example.com:443', 'PyPI.org.', 'bücher.de', '1.2.3.4', '[2606:4700::1111]:8443', '*'] },
    { allow: ['a.test'], inject: [{ host: 'a.test', header: 'Authorization', secret }] },
    { allow: ['*.a.test'], inject: [{ host: 'x.a.test', header: 'X-Key', secret, tls: false }] },
  ])('may be %j', (network) => {
    expect(NetworkSchema.safeParse(network).success).toBe(true);
  });

  test.each([
    {},
    { allow: [] },
    { allow: 'pypi.org' },
    { allow: [''] },
    { allow: ['http://pypi.org'] },
    { allow: ['pypi.org/simple'] },
    { allow: ['pypi.org:25'] },
    { allow: ['pypi.org:0'] },
    { allow: ['pypi.org:65536'] },
    { allow: ['*.org'] },
    { allow: ['pypi.*'] },
    { allow: ['127.1'] },
    { allow: ['0x7f.0.0.1'] },
    { allow: ['2130706433'] },
    { allow: ['①②⑦.⓪.⓪.①'] },
    { allow: ['user@pypi.org'] },
    { allow: ['pypi.org\r\nX: y'] },
    { allow: Array.from({ length: 65 }, (_, index) => `h${index}.test`) },
    { allow: ['a.test'], deny: [] },
    { allow: ['a.test'], inject: [{ host: 'b.test', header: 'X-Key', secret }] },
    { allow: ['*.a.test'], inject: [{ host: '*.a.test', header: 'X-Key', secret }] },
    { allow: ['1.2.3.4'], inject: [{ host: '1.2.3.4', header: 'X-Key', secret }] },
    { allow: ['a.test'], inject: [{ host: 'a.test', header: 'Host', secret }] },
    { allow: ['a.test'], inject: [{ host: 'a.test', header: 'Transfer-Encoding', secret }] },
    { allow: ['a.test'], inject: [{ host: 'a.test', header: 'X Key', secret }] },
    { allow: ['a.test'], inject: [{ host: 'a.test', header: 'X-Key', secret: 'a\r\nX: y' }] },
    { allow: ['a.test'], inject: [{ host: 'a.test', header: 'X-Key', secret: 'seven77' }] },
  ])('is not %j', (network) => {
    expect(NetworkSchema.safeParse(network).success).toBe(false);
  });

  test('is shown without its secrets, and grants name what is shown', async () => {
    const network = NetworkSchema.parse({
      allow: ['a.test'],
      inject: [{ host: 'a.test', header: 'X-Key', secret }],
    });
    expect(networkView(network)).toEqual({
      allow: ['a.test'],
      inject: [{ host: 'a.test', header: 'X-Key', tls: true }],
    });
    const other = NetworkSchema.parse({ allow: ['b.test'] });
    expect(await egressClaim(null)).toBe('none');
    expect(await egressClaim(network)).toMatch(/^[0-9a-f]{64}$/);
    expect(await egressClaim(other)).not.toBe(await egressClaim(network));
  });
});
