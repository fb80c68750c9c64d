"""Plain numpy forward passes of the encoders, beside `family_reference`."""

from __future__ import annotations

import math

import numpy as np

from tests.support.family_reference import FamilyReference, attend, gelu


class EncoderReference(FamilyReference):
    def text(self, ids, types):
        """(B, S) ids and token types -> last_hidden_state, pooler_output."""
        w = self.w
        x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.token_type_embeddings.weight"][types]
        x = self.layer_norm(x + w["embeddings.position_embeddings.weight"][: ids.shape[1]], "embeddings.LayerNorm")
        for i in range(self.layers):
            n = f"encoder.layer.{i}."
            y = self.linear(self._all_to_all(x, n + "attention.self."), n + "attention.output.dense")
            x = self.layer_norm(x + y, n + "attention.output.LayerNorm")
            y = self.linear(gelu(self.linear(x, n + "intermediate.dense")), n + "output.dense")
            x = self.layer_norm(x + y, n + "output.LayerNorm")
        return {
            "last_hidden_state": x,
            "pooler_output": np.tanh(self.linear(x[:, 0], "pooler.dense")),
        }

    def image(self, pixels):
        """(B, C, H, W) -> last_hidden_state, logits."""
        w, p = self.w, self.c["patch_size"]
        kernel = w["vit.embeddings.patch_embeddings.projection.weight"]
        rows = []
        for top in range(0, pixels.shape[2], p):
            for left in range(0, pixels.shape[3], p):
                patch = pixels[:, :, top : top + p, left : left + p]
                rows.append(np.einsum("bcij,ocij->bo", patch, kernel))
        x = np.stack(rows, axis=1) + w["vit.embeddings.patch_embeddings.projection.bias"]
        token = np.broadcast_to(w["vit.embeddings.cls_token"], (x.shape[0], 1, self.h))
        x = np.concatenate([token, x], axis=1) + w["vit.embeddings.position_embeddings"]
        for i in range(self.layers):
            n = f"vit.encoder.layer.{i}."
            h = self._all_to_all(self.layer_norm(x, n + "layernorm_before"), n + "attention.attention.")
            x = x + self.linear(h, n + "attention.output.dense")
            h = gelu(self.linear(self.layer_norm(x, n + "layernorm_after"), n + "intermediate.dense"))
            x = x + self.linear(h, n + "output.dense")
        x = self.layer_norm(x, "vit.layernorm")
        return {"last_hidden_state": x, "logits": self.linear(x[:, 0], "classifier")}

    def _all_to_all(self, x, name):
        q, k, v = (self.split(self.linear(x, name + p), self.heads) for p in ("query", "key", "value"))
        return attend(q, k, v, 1 / math.sqrt(self.dim), np.ones((x.shape[1],) * 2, bool))
