"""Functions of torch in all their variants, as expressions of what a network holds half-way.

h are 6 features of order one at each point, p positive ones, s inside of (-1, 1), big ones of both signs beyond 1; m
are 3 by 3 matrices, spd symmetric positive ones, q of shape (B, 2, 3), img of shape (B, 1, 4, 4), seq of shape
(B, 2, 6), z complex numbers; w, v, k, mask and index are constants.
"""

from __future__ import annotations

ELEMENTWISE = """
torch.abs(h) | h.absolute() | torch.acos(s) | torch.arccos(s) | torch.acosh(p + 1) | torch.asin(s) | s.arcsin()
torch.asinh(h) | torch.atan(h) | h.arctan() | torch.atanh(s) | torch.cos(h) | torch.cosh(h) | torch.deg2rad(h)
torch.rad2deg(h) | torch.digamma(p) | torch.erf(h) | torch.erfc(h) | torch.erfinv(s) | torch.exp(h) | torch.exp2(h)
torch.expm1(h) | torch.frac(big) | torch.lgamma(p) | torch.log(p) | torch.log10(p) | torch.log1p(p) | torch.log2(p)
torch.logit(s * s + 0.02) | torch.logit(p / 2, eps=1e-3) | torch.mvlgamma(p + 1, 2) | torch.nan_to_num(h) | torch.neg(h)
torch.polygamma(1, p) | torch.polygamma(2, p) | torch.positive(h) | torch.reciprocal(p) | torch.rsqrt(p)
torch.sigmoid(h) | torch.sin(h) | torch.sinc(h) | torch.sinh(h) | torch.sqrt(p) | torch.square(h) | torch.tan(s)
torch.tanh(h) | torch.i0(h) | torch.special.i0e(h) | torch.special.i1(h) | torch.special.i1e(h) | torch.special.entr(p)
torch.special.erfcx(h) | torch.special.expit(h) | torch.special.gammaln(p) | torch.special.log_ndtr(h)
torch.special.ndtr(h) | torch.special.ndtri(s * s + 0.02) | torch.special.psi(p) | torch.special.logit(s * s + 0.02)
torch.special.expm1(h) | torch.special.exp2(h) | torch.special.sinc(h) | torch.special.log1p(p)
torch.special.xlogy(h, p) | torch.special.xlog1py(h, p) | torch.special.zeta(p + 2, 1.5 + w[0]) | torch.xlogy(h, p)
torch.xlogy(w[0].abs(), p) | torch.xlogy(h, w[0].abs()) | F.celu(h) | F.celu(h, 1.5) | F.elu(h) | F.elu(h, 0.7)
F.gelu(h) | F.gelu(h, approximate="tanh") | F.hardshrink(h, 0.3) | F.hardsigmoid(2 * h) | F.hardswish(2 * h)
F.hardtanh(big) | F.hardtanh(h, -0.4, 0.3) | F.leaky_relu(h) | F.leaky_relu(h, 0.2) | F.logsigmoid(h) | F.mish(h)
F.prelu(h, v[:1]) | F.prelu(h, v) | F.relu(h) | F.relu6(4 * big) | F.rrelu(h) | F.selu(h) | F.silu(h) | F.softplus(h)
F.softplus(h, 2.0, 1.0) | F.softshrink(h, 0.2) | F.softsign(h) | F.tanhshrink(h) | F.threshold(h, 0.1, 2.0)
torch.celu(h) | torch.selu(h) | torch.threshold(h, 0.1, 2.0)
"""

PAIRS = """
torch.add(h, s) | torch.add(h, s, alpha=2) | torch.sub(h, s, alpha=3) | torch.rsub(h, s) | torch.mul(h, s)
torch.div(h, p) | torch.div(h, p, rounding_mode="floor") * h | torch.div(h, p, rounding_mode="trunc") * h
torch.true_divide(h, p) | torch.floor_divide(big, p) * h | torch.remainder(big, 0.7) | torch.remainder(big, p)
torch.fmod(big, 0.7) | torch.fmod(big, p) | big % 0.7 | torch.pow(p, 1.7) | torch.pow(p, s) | torch.pow(2.0, h)
torch.pow(w[0].abs(), h) | torch.pow(h, 3) | torch.float_power(p, 2.5) | torch.float_power(p, s) | p.pow(v.abs())
torch.atan2(h, p) | torch.atan2(h, big) | torch.atan2(w[0], big) | torch.arctan2(h, 1 + s) | torch.hypot(h, p)
torch.hypot(h, w[0]) | torch.maximum(h, s) | torch.minimum(h, s) | torch.maximum(h, w[0]) | torch.fmax(h, s)
torch.fmin(h, s) | torch.max(h, s) | torch.min(h, s) | torch.clamp(h, -0.3, 0.4) | torch.clamp(h, min=0.1)
torch.clamp(h, max=0.1) | torch.clip(h, -0.2, 0.2) | torch.clamp(h, w[0] - 1, w[0] + 1)
torch.clamp(h, s - 0.5, s + 0.5) | h.clamp_min(0.1) | h.clamp_max(0.1) | torch.lerp(h, s, 0.3) | torch.lerp(h, s, p)
torch.lerp(h, w[0], s) | torch.addcmul(h, s, p) | torch.addcmul(h, s, p, value=0.5) | torch.addcdiv(h, s, p, value=0.5)
torch.logaddexp(h, s) | torch.logaddexp(h, w[0]) | torch.logaddexp2(h, s) | torch.copysign(h, s)
torch.copysign(h, w[0]) | torch.ldexp(h, torch.tensor(2)) | torch.heaviside(h, w[0]) * h
torch.nextafter(h, s).detach() * h | torch.where(h > 0, h, s) | torch.where(mask, h, 0.0) | torch.where(mask, w[0], s)
torch.dist(h[0], s[0]) * h | torch.true_divide(1.0, p) | torch.special.xlog1py(w[0], p)
torch.bitwise_and(h > 0, s > 0) * h
"""

JUMPS = """
torch.floor(big) * h | torch.ceil(big) * h | torch.round(big) * h | torch.round(big, decimals=1) * h
torch.trunc(big) * h | torch.fix(big) * h | torch.sign(h) * h | torch.sgn(h) * h | torch.signbit(h) * h
torch.isnan(h) * s + h | torch.isfinite(h) * h | torch.argmax(h, 1, keepdim=True) * h
torch.argmin(h, 1, keepdim=True) * h | torch.argsort(h, 1) * h
torch.bucketize(h, torch.linspace(-1, 1, 5, dtype=h.dtype)) * h
torch.searchsorted(torch.linspace(-1, 1, 5, dtype=h.dtype), h) * h | (h > 0) * h | (h == s) * h + h
(h <= 0).to(h.dtype) * h | torch.logical_and(h > 0, s > 0) * h | h.long() * h + h | h.int().to(h.dtype) * h
h.bool() * h | F.one_hot((p * 2).long(), 4).to(h.dtype) * h.unsqueeze(-1)
torch.count_nonzero(h > 0, 1).unsqueeze(1) * h
"""

REDUCTIONS = """
h.sum(1, keepdim=True) | q.sum((1, 2)) | h.mean(1, keepdim=True) | h.nansum(1, keepdim=True)
h.nanmean(1, keepdim=True) | torch.prod(h, 1) | torch.prod(1 - h**2, 1, keepdim=True) | q.prod(-1)
h.prod(-1, keepdim=True) | h.cumsum(1) | h.cumprod(1) | torch.logcumsumexp(h, 1) | torch.cummax(h, 1)[0]
torch.cummin(h, 1).values | h.amax(1) | h.amin(1, keepdim=True) | q.amax((1, 2)) | h.max(1)[0]
h.min(1, keepdim=True).values | h.aminmax(dim=1)[1] | torch.max(h[0]) * h | h.median(1)[0] | h.nanmedian(1)[0]
h.mode(1)[0] | h.kthvalue(2, 1)[0] | torch.sort(h, 1)[0] | torch.sort(h, dim=1, descending=True).values
h.sort(1, True)[0] | torch.topk(h, 3, 1)[0] | h.topk(2)[0] | torch.topk(h, 2, dim=1, largest=False).values
torch.msort(h.T).T | torch.quantile(h, 0.3, dim=1) | torch.quantile(h, torch.tensor([0.2, 0.6], dtype=h.dtype), dim=1).T
torch.nanquantile(h, 0.4, dim=1) | torch.norm(h, dim=1) | torch.norm(h, 1, 1) | torch.norm(h, p=3, dim=1, keepdim=True)
h.norm(dim=-1) | h.norm(float("inf"), 1) | torch.norm(q, "fro", (1, 2)) | torch.norm(h, float("-inf"), 1)
torch.norm(h, 0.5, 1) | torch.linalg.norm(h, dim=1) | torch.linalg.norm(h, 3, 1) | torch.linalg.vector_norm(h, dim=1)
torch.linalg.vector_norm(h, 1.5, 1) | torch.linalg.vector_norm(h, float("inf"), 1) | torch.linalg.norm(m, "fro", (1, 2))
torch.linalg.norm(m, "nuc", (1, 2)) | torch.linalg.matrix_norm(m) | torch.linalg.matrix_norm(m, 2)
torch.linalg.matrix_norm(m, 1) | torch.var(h, 1) | h.var(1, correction=0) | torch.std(h, 1, keepdim=True)
h.std(1, unbiased=False) | torch.var_mean(h, 1)[0] | torch.std_mean(h, 1)[0] | torch.std_mean(h, 1)[1]
torch.logsumexp(h, 1) | h.logsumexp(1, keepdim=True) | torch.softmax(h, 1) | F.softmax(h, dim=1) | h.softmax(-1)
F.softmin(h, dim=1) | torch.log_softmax(h, 1) | F.log_softmax(h, dim=-1) | h.log_softmax(1) | F.normalize(h)
F.normalize(h, p=1.0) | F.normalize(q, p=3.0, dim=-1) | F.cosine_similarity(h, s)
F.cosine_similarity(q[:, 0], q[:, 1]) | F.pairwise_distance(h, s) | F.pairwise_distance(h, w[:1])
torch.cdist(q, 0.5 * q + 1) | torch.cdist(q, w[None, :2, :3]) | torch.cov(q[0])[0, 1] * h
torch.trapezoid(h, dx=0.1, dim=1) | torch.trapz(h, dim=1) | torch.cumulative_trapezoid(h, dim=1) | torch.diff(h, dim=1)
torch.gradient(h, dim=1)[0] | torch.renorm(h, 2, 0, 0.7) | F.log_softmax(q, 2) | torch.linalg.diagonal(m)
torch.linalg.vecdot(h, s) | F.mse_loss(h, s, reduction="none") | F.smooth_l1_loss(h, s, reduction="none")
F.huber_loss(h, s, reduction="none") | F.l1_loss(h, s, reduction="none") | F.kl_div(h, p, reduction="none")
F.binary_cross_entropy(p / 2, truth(h), reduction="none") | F.poisson_nll_loss(h, p, reduction="none")
F.binary_cross_entropy_with_logits(h, truth(h), reduction="none") | F.gaussian_nll_loss(h, s, p, reduction="none")
F.cross_entropy(h, rows(h)[:, 1], reduction="none")
F.cosine_embedding_loss(h, s, torch.ones(len(h)), reduction="none")
"""

SHAPES = """
torch.cat([h, s], 1) | torch.cat([h, w[:1].expand(len(h), 6)], 1) | torch.stack([h, s], 1) | torch.hstack([h, s])
torch.dstack([h, s]) | torch.column_stack([h, s]) | h.reshape(-1, 2, 3) | h.view(-1, 3, 2) | h.flatten(1)
h.unflatten(1, (2, 3)) | q.transpose(1, 2) | q.permute(0, 2, 1) | q.movedim(1, 2) | q.swapaxes(1, 2) | q.mT | h.T.T
h.unsqueeze(1).squeeze(1) | h.expand(2, -1, -1)[1] | h.repeat(1, 2) | h.tile((1, 2)) | h.repeat_interleave(2, 1)
h.flip(1) | torch.fliplr(h) | torch.rot90(q, 1, (1, 2)) | h.roll(1, 1) | h.narrow(1, 1, 3) | h.select(1, 2) | h[:, 1:4]
h[:, [2, 0]] | h[..., ::2] | h[:, index[0, :3]] | h.index_select(1, index[0, :3]) | h.gather(1, rows(h))
torch.take_along_dim(h, rows(h), 1) | h.split(2, 1)[1] | h.chunk(3, 1)[2] | h.tensor_split(4, 1)[1] | h.unbind(1)[3]
torch.diagonal(m, 0, 1, 2) | torch.diag_embed(h) | torch.tril(m) | torch.triu(m, 1) | h.masked_fill(mask, 0.5)
torch.masked_fill(h, h > 0, 1.0) | h.index_add(1, index[0, :3], s[:, :3]) | h.index_copy(1, index[0, :3], s[:, :3])
h.index_fill(1, index[0, :2], 0.5) | h.scatter(1, rows(h)[:, :3], s[:, :3]) | h.scatter_add(1, rows(h)[:, :3], s[:, :3])
h.scatter_reduce(1, rows(h)[:, :3], s[:, :3], "sum") | h.select_scatter(s[:, 0], 1, 2)
h.slice_scatter(s[:, :2], 1, 1, 3) | h[0].masked_scatter(mask, s[0])
h.index_put((torch.arange(len(h)), index[0, :1].expand(len(h))), s[:, 0]) | m.diagonal_scatter(h[:, :3], 0, 1, 2)
F.pad(h, (1, 1)) | F.pad(h, (1, 2), value=0.3) | F.pad(seq, (1, 1), mode="reflect")
F.pad(seq, (2, 1), mode="circular") | F.pad(seq, (1, 1), mode="replicate") | h.unfold(1, 3, 1)
torch.meshgrid(h[0], s[0], indexing="ij")[0].reshape(1, -1).expand(len(h), -1) * h[:, :1]
torch.cartesian_prod(h[0], s[0])[:6, 0] * h | torch.block_diag(m[0], m[0])[:3].sum() * h
torch.combinations(h[0])[3, 1] * h | torch.atleast_3d(h)[..., 0] | torch.broadcast_to(h, (2, len(h), 6))[0]
torch.clone(h) | h.contiguous() | h.to(torch.float64) | h.type_as(w) | h.view_as(s) | h.double()
torch.vander(h[0])[:, 1] * h | torch.tensor_split(h, (1, 3), 1)[1] | h.as_strided((len(h), 3), (6, 2))
"""

PRODUCTS = """
h @ w | torch.matmul(h, w) | torch.mm(h, w) | torch.bmm(q, m) | q @ m | torch.matmul(m, m) | w @ m.new_ones(6) * h
F.linear(h, w) | F.linear(h, w, v) | torch.addmm(v, h, w) | torch.baddbmm(q, q, m)
torch.addbmm(w[:2, :3], q[:1], m[:1])[0, 1] * h[0] | torch.mv(h, v).unsqueeze(1) * s | torch.addmv(h[:, 0], h, v)
(h * v).sum(1) | torch.dot(h[0], s[0]) * h | torch.inner(h, w) | torch.outer(h[0], s[0])[:1] * h
torch.kron(q[0], m[0])[:1, :6] * h | torch.tensordot(h, w, 1) | torch.tensordot(q, m[0], ([2], [0]))
torch.einsum("bi,oi->bo", h, w) | torch.einsum("bi,bj->bij", h, s) | torch.einsum("bij,bjk,bkl->bil", q, m, m)
torch.einsum("bi,bi,ij->bj", h, s, w) | torch.einsum("bii->b", m) | torch.linalg.multi_dot([h, w, w])
torch.chain_matmul(h, w, w) | F.bilinear(h, s, w.reshape(1, 6, 6)) | F.bilinear(h, s, w.reshape(1, 6, 6), v[:1])
torch.cross(q[:, 0], q[:, 1], dim=1) | torch.linalg.cross(q[:, 0], q[:, 1]) | torch.vdot(h[0], s[0]) * h
torch.linalg.matrix_power(m, 3) | torch.linalg.matrix_power(m, -1) | torch.matrix_exp(m) | torch.linalg.det(m)
torch.det(m) | torch.logdet(spd) | torch.linalg.slogdet(m)[1] | torch.linalg.inv(m) | torch.inverse(m)
torch.linalg.pinv(m) | torch.linalg.solve(m, h[:, :3]) | torch.linalg.solve(m, q.mT) | torch.linalg.cholesky(spd)
torch.linalg.eigvalsh(spd) | torch.linalg.eigh(spd)[0] | torch.linalg.svdvals(m) | torch.linalg.svd(m)[1]
torch.linalg.qr(m)[1].abs() | torch.linalg.lu(m)[2] | torch.linalg.lu_factor(m)[0]
torch.linalg.solve_triangular(m.triu() + 2, q.mT, upper=True) | torch.cholesky_solve(q.mT, torch.linalg.cholesky(spd))
torch.cholesky_inverse(torch.linalg.cholesky(spd)) | torch.linalg.lstsq(m, q.mT)[0] | torch.linalg.cond(m)
torch.linalg.vander(h[:, :3]) | torch.linalg.matrix_exp(m) | torch.linalg.householder_product(m, h[:, :3])
torch.trace(m[0]) * h
"""

LAYERS = """
F.layer_norm(h, (6,)) | F.layer_norm(h, (6,), v, v) | F.group_norm(h, 2) | F.rms_norm(h, (6,)) | F.instance_norm(seq)
F.batch_norm(h, v, v.abs()) | F.local_response_norm(seq, 2) | F.dropout(h, 0.5, training=False)
F.alpha_dropout(h, 0.5, False) | F.conv1d(seq, k[0]) | F.conv1d(seq, k[0], v[:3], padding=1) | F.conv2d(img, k[1])
F.conv2d(img, k[1], v[:2], stride=2, padding=1) | F.conv_transpose1d(seq, k[2])
F.conv_transpose2d(img, k[1].transpose(0, 1)) | F.conv1d(seq, q[0][None]) | F.avg_pool1d(seq, 2) | F.avg_pool2d(img, 2)
F.adaptive_avg_pool1d(seq, 3) | F.adaptive_avg_pool2d(img, 2) | F.max_pool1d(seq, 2) | F.max_pool2d(img, 2)
F.adaptive_max_pool1d(seq, 3) | F.adaptive_max_pool2d(img, 2) | F.lp_pool1d(seq, 2, 2)
F.lp_pool2d(img.abs() + 0.1, 3, 2) | F.interpolate(seq, scale_factor=2) | F.interpolate(seq, size=9, mode="linear")
F.interpolate(img, scale_factor=2, mode="bilinear") | F.interpolate(img, size=7, mode="bicubic", align_corners=True)
F.pixel_shuffle(img.expand(-1, 4, -1, -1), 2) | F.pixel_unshuffle(img, 2) | F.unfold(img, 2)
F.fold(F.unfold(img, 2), 4, 2) | F.grid_sample(img, torch.tanh(img.reshape(-1, 4, 2, 2)), align_corners=False)
F.affine_grid(q, (len(h), 1, 2, 2), align_corners=False) | F.glu(h)
torch.channel_shuffle(img.expand(-1, 4, -1, -1), 2) | F.embedding(index, w)[0, :1] * h
F.scaled_dot_product_attention(q, q, q) | F.scaled_dot_product_attention(q, q, q, is_causal=True)
F.scaled_dot_product_attention(q, q, q, q @ q.mT) | F.embedding_bag(index, w)[:, :6] * h
rnn(seq.transpose(0, 1))[0].transpose(0, 1) | lstm(seq.transpose(1, 2))[0] | gru(seq.transpose(1, 2))[0]
lstm2(seq.transpose(1, 2))[1][1].transpose(0, 1) | lstm_cell(h)[0] | gru_cell(h) | rnn_cell(h) | attention(q, q, q)[0]
encoder(q) | torch.utils.checkpoint.checkpoint(torch.tanh, h, use_reentrant=False)
F.triplet_margin_loss(h, s, p, reduction="none")
F.soft_margin_loss(h, w[:1].sign().expand(len(h), 6), reduction="none")
F.margin_ranking_loss(h, s, w[:1].sign(), reduction="none")
F.multilabel_soft_margin_loss(h, truth(h), reduction="none") | F.gumbel_softmax(h, hard=False) * 0 + h
"""

COMPLEX = """
torch.exp(1j * h).real | torch.exp(1j * h).imag | (z * z).real | torch.abs(z) | z.abs() ** 2 | torch.angle(z)
torch.real(z) | z.imag | torch.view_as_real(z) | torch.view_as_complex(torch.stack([h, s], -1)).imag
torch.complex(h, s).abs() | torch.polar(p, h).real | (z * z.conj()).real | torch.sin(z).real | torch.tanh(z).imag
torch.sqrt(z + 3).real | torch.log(z + 3).imag | (1 / z).real | (z**3).imag | torch.fft.fft(h).real
torch.fft.fft(h).abs() | torch.fft.rfft(h).imag | torch.fft.irfft(torch.fft.rfft(h)) | torch.fft.ifft(z).real
torch.fft.fft2(q).imag | torch.fft.fftn(q, dim=(1, 2)).real | torch.fft.fftshift(h, 1) | torch.fft.hfft(z).real
(z @ (w + 1j * w)).imag | torch.sgn(z).real | torch.linalg.norm(z, dim=1) | torch.prod(z, 1).real
torch.linalg.vector_norm(z, dim=1) | z.sum(1).abs() | z.mean(1).angle() | (h + 1j * w[0]).abs()
torch.linalg.inv(m + 0.3j * m.mT).real | z.var(1) | torch.vdot(z[0], z[0] ** 2).real * h
"""

WRITTEN = """
written(lambda y: y.add_(s), h) | written(lambda y: y.mul_(2), h) | written(lambda y: y.div_(p), h)
written(lambda y: y.sub_(1), h) | written(lambda y: y.tanh_(), h) | written(lambda y: y.clamp_(-0.2, 0.3), h)
written(lambda y: y[:, :2].zero_(), h) | written(lambda y: y[:, 1:].fill_(2.0), h) | written(lambda y: y.copy_(s), h)
written(lambda y: y[:, 1:3].mul_(s[:, 1:3]), h) | written(lambda y: y[:, 0].zero_(), h)
written(lambda y: y.__setitem__((slice(None), 2), s[:, 1]), h)
written(lambda y: y.__setitem__((slice(None), slice(1, 3)), 0.5), h)
written(lambda y: y.__setitem__(mask.expand_as(h), 0.7), h) | written(lambda y: y.__setitem__(y > 0, 0.1), h)
written(lambda y: y.masked_fill_(mask, 0.2), h) | written(lambda y: y.index_add_(1, index[0, :3], s[:, :3]), h)
written(lambda y: y.scatter_(1, rows(h)[:, :2], s[:, :2]), h) | written(lambda y: y.addcmul_(s, p), h)
written(lambda y: torch.relu_(y), h) | written(lambda y: F.elu(y, inplace=True), h)
written(lambda y: F.hardtanh(y, inplace=True), h) | written(lambda y: y.view(-1).mul_(3), h)
written(lambda y: y.T[1].add_(s[:, 0]), h) | written(lambda y: y.select(1, 2).mul_(s[:, 0]), h)
written(lambda y: y.reshape(-1, 2, 3)[:, 1].pow_(2), h) | written(lambda y: y.fill_diagonal_(0.3), h)
written(lambda y: y.__ipow__(2), h) | written(lambda y: y.copy_(h * s), zeros(h))
written(lambda y: y.__setitem__((slice(None), 1), h[:, 0]), zeros(h))
written(lambda y: y[:, 2:].add_(h[:, 2:]), ones(h)) | written(lambda y: y.__iadd__(h), ones(h))
"""

TABLES = {
    "elementwise": ELEMENTWISE, "pairs": PAIRS, "jumps": JUMPS, "reductions": REDUCTIONS, "shapes": SHAPES,
    "products": PRODUCTS, "layers": LAYERS, "complex": COMPLEX, "written": WRITTEN,
}  # fmt: skip
VARIANTS = [
    entry.strip() for table in TABLES.values() for line in table.strip().splitlines() for entry in line.split(" | ")
]


#: Replacements for functions that nested autograd cannot differentiate to this order.
TWINS = {
    "torch.copysign(h, s)": "h.abs() * torch.sign(s)",
    "torch.copysign(h, w[0])": "h.abs() * torch.sign(w[0])",
    "F.hardsigmoid(2 * h)": "(h / 3 + 0.5).clamp(0, 1)",
    "torch.floor_divide(big, p) * h": "(big / p).detach().floor() * h",
    "torch.heaviside(h, w[0]) * h": "(h > 0) * h",
    "torch.cdist(q, 0.5 * q + 1)": "(q[:, :, None] - (0.5 * q + 1)[:, None]).square().sum(-1).sqrt()",
    "torch.cdist(q, w[None, :2, :3])": "(q[:, :, None] - w[None, None, :2, :3]).square().sum(-1).sqrt()",
    "torch.vander(h[0])[:, 1] * h": "h[0] ** 4 * h",
    "torch.logcumsumexp(h, 1)": "h.exp().cumsum(1).log()",
}
