"""LlamaIndex's default vector index over sessions, cut into its nodes: its plain RAG, which asks no language model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from llama_index.core import Document, StorageContext, VectorStoreIndex, load_index_from_storage
from llama_index.core.node_parser import TokenTextSplitter
from llama_index.core.schema import MetadataMode
from llama_index.embeddings.openai_like import OpenAILikeEmbedding


class System:
    """One document per session, cut into overlapping pieces; a search retrieves pieces."""

    def __init__(self, folder: str, settings: dict[str, Any]) -> None:
        self.folder = folder
        embed = OpenAILikeEmbedding(
            model_name=settings["embedder"], api_base=settings["url"], api_key=settings["key"], embed_batch_size=64
        )
        # Its own tokenizer's table would be fetched; words are near enough to cut by.
        splitter = TokenTextSplitter(chunk_size=192, chunk_overlap=32, tokenizer=str.split)
        own: dict[str, Any] = {"embed_model": embed, "transformations": [splitter]}
        if (Path(folder) / "docstore.json").exists():
            self.index: Any = load_index_from_storage(StorageContext.from_defaults(persist_dir=folder), **own)
        else:
            self.index = VectorStoreIndex([], **own)

    def add(self, session: dict[str, Any]) -> None:
        """Stores a session with its date, and where in it each turn begins."""
        text, begins = "", []
        for turn in session["turns"]:
            begins.append([turn["id"], len(text)])
            text += f"{turn['speaker']}: {turn['text']}\n"
        if text:
            about = {"date": session["time"], "begins": begins}
            hidden = {"excluded_embed_metadata_keys": ["begins"], "excluded_llm_metadata_keys": ["begins"]}
            self.index.insert(Document(text=text, id_=session["id"], metadata=about, **hidden))

    def search(self, query: str, k: int) -> list[dict[str, Any]]:
        """The most similar pieces."""
        nodes = [hit.node for hit in self.index.as_retriever(similarity_top_k=k).retrieve(query)]
        return [{"text": node.get_content(MetadataMode.LLM), "ids": _turns(node)} for node in nodes]

    def __len__(self) -> int:
        return len(self.index.docstore.docs)

    def close(self) -> None:
        """Writes the index."""
        self.index.storage_context.persist(self.folder)


def _turns(node: Any) -> list[str]:
    """The turns that a piece holds, in part or whole."""
    begins = node.metadata["begins"]
    ends = [begin for _, begin in begins[1:]] + [node.end_char_idx + 1]
    return [
        name
        for (name, begin), end in zip(begins, ends, strict=True)
        if begin < node.end_char_idx and end > node.start_char_idx
    ]
