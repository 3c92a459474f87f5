// Unpacks LZMA, the format of `xz --format=alone`: a quarter smaller than what browsers unpack themselves. After the specification of
// the LZMA SDK (7-zip.org, public domain), with its names; what it says is trusted, since it comes in the page.
const fresh = (n) => new Uint16Array(n).fill(1024);  // probabilities of a half

// Bits, each with a probability that learns.
function rangeDecoder(input, start) {
  let at = start + 5;
  let range = 0xffffffff;
  let code = ((input[start + 1] << 24) | (input[start + 2] << 16) | (input[start + 3] << 8) | input[start + 4]) >>> 0;
  function bit(probs, i) {
    const p = probs[i];
    const bound = (range >>> 11) * p;
    let b = 0;
    if (code < bound) {
      range = bound;
      probs[i] = p + ((2048 - p) >> 5);
    } else {
      range -= bound;
      code -= bound;
      probs[i] = p - (p >> 5);
      b = 1;
    }
    if (range < 0x1000000) {
      range = (range << 8) >>> 0;
      code = ((code << 8) | input[at++]) >>> 0;
    }
    return b;
  }
  return {
    bit,
    tree(probs, offset, bits) {
      let m = 1;
      for (let i = 0; i < bits; ++i) m = (m << 1) | bit(probs, offset + m);
      return m - (1 << bits);
    },
    reverseTree(probs, offset, bits) {
      let m = 1;
      let symbol = 0;
      for (let i = 0; i < bits; ++i) {
        const b = bit(probs, offset + m);
        m = (m << 1) | b;
        symbol |= b << i;
      }
      return symbol;
    },
    direct(bits) {
      let out = 0;
      for (let i = 0; i < bits; ++i) {
        range >>>= 1;
        const b = code >= range ? 1 : 0;
        if (b) code -= range;
        out = out * 2 + b;
        if (range < 0x1000000) {
          range = (range << 8) >>> 0;
          code = ((code << 8) | input[at++]) >>> 0;
        }
      }
      return out;
    },
  };
}

function lengthDecoder(rc) {
  const choice = fresh(2);
  const low = fresh(16 * 8);
  const middle = fresh(16 * 8);
  const high = fresh(256);
  return (place) => {
    if (!rc.bit(choice, 0)) return rc.tree(low, place * 8, 3);
    if (!rc.bit(choice, 1)) return 8 + rc.tree(middle, place * 8, 3);
    return 16 + rc.tree(high, 0, 8);
  };
}

function distanceDecoder(rc) {
  const slots = fresh(4 * 64);
  const special = fresh(128);
  const align = fresh(16);
  return (length) => {
    const slot = rc.tree(slots, Math.min(length, 3) * 64, 6);
    if (slot < 4) return slot;
    const bits = (slot >> 1) - 1;
    const base = (2 | (slot & 1)) * 2 ** bits;
    return slot < 14 ? base + rc.reverseTree(special, base - slot, bits) : base + rc.direct(bits - 4) * 16 + rc.reverseTree(align, 0, 4);
  };
}

export function unpackLzma(input) {
  const lc = input[0] % 9;
  const lp = Math.floor(input[0] / 9) % 5;
  const pb = Math.floor(input[0] / 45);
  const rc = rangeDecoder(input, 13);
  const literals = fresh(0x300 << (lc + lp));
  const [match, rep0Long] = [fresh(192), fresh(192)];
  const [rep, repG0, repG1, repG2] = [fresh(12), fresh(12), fresh(12), fresh(12)];
  const [lengthOf, repeatLength, distanceOf] = [lengthDecoder(rc), lengthDecoder(rc), distanceDecoder(rc)];
  let out = new Uint8Array(1 << 22);
  let pos = 0;
  let state = 0;
  let [r0, r1, r2, r3] = [0, 0, 0, 0];

  function literal() {
    const before = pos > 0 ? out[pos - 1] : 0;
    const offset = 0x300 * (((pos & ((1 << lp) - 1)) << lc) + (before >> (8 - lc)));
    let symbol = 1;
    if (state >= 7) {
      let matched = out[pos - r0 - 1];
      while (symbol < 256) {
        const m = (matched >> 7) & 1;
        matched <<= 1;
        const b = rc.bit(literals, offset + ((1 + m) << 8) + symbol);
        symbol = (symbol << 1) | b;
        if (m !== b) break;
      }
    }
    while (symbol < 256) symbol = (symbol << 1) | rc.bit(literals, offset + symbol);
    out[pos++] = symbol;
    state = state < 4 ? 0 : state < 10 ? state - 3 : state - 6;
  }

  // The length of a repetition of an earlier distance; 1 where it is one byte.
  function repeat(place) {
    if (!rc.bit(repG0, state)) {
      if (!rc.bit(rep0Long, (state << 4) + place)) {
        state = state < 7 ? 9 : 11;
        return 1;
      }
    } else {
      let distance = r1;
      if (rc.bit(repG1, state)) {
        distance = r2;
        if (rc.bit(repG2, state)) {
          distance = r3;
          r3 = r2;
        }
        r2 = r1;
      }
      r1 = r0;
      r0 = distance;
    }
    state = state < 7 ? 8 : 11;
    return repeatLength(place) + 2;
  }

  for (;;) {
    if (pos + 300 > out.length) {
      const more = new Uint8Array(2 * out.length);
      more.set(out);
      out = more;
    }
    const place = pos & ((1 << pb) - 1);
    if (!rc.bit(match, (state << 4) + place)) {
      literal();
      continue;
    }
    let length = 0;
    if (rc.bit(rep, state)) length = repeat(place);
    else {
      [r3, r2, r1] = [r2, r1, r0];
      const coded = lengthOf(place);
      state = state < 7 ? 7 : 10;
      r0 = distanceOf(coded);
      if (r0 === 0xffffffff) return out.subarray(0, pos);  // the mark of the end
      length = coded + 2;
    }
    for (const end = pos + length; pos < end; ++pos) out[pos] = out[pos - r0 - 1];
  }
}
