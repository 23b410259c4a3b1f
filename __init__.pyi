"""The public names, each once: `__init__.py` imports them from here, on first use."""

from .errors import ConflictError as ConflictError
from .errors import DataError as DataError
from .errors import EndpointError as EndpointError
from .errors import MempilerError as MempilerError
from .errors import MissingDependencyError as MissingDependencyError
from .errors import ProgramError as ProgramError
from .errors import ServiceError as ServiceError
from .errors import StoreError as StoreError
from .errors import UnknownNameError as UnknownNameError
from .errors import UserError as UserError
from .memory.index import Entry as Entry
from .memory.memory import Memory as Memory
from .memory.store import Store as Store
from .programs.catalog import build as build
from .programs.method import EntryReader as EntryReader
from .programs.method import Lost as Lost
from .programs.method import Method as Method
from .programs.method import Policy as Policy
from .programs.method import Reader as Reader
from .programs.method import Writer as Writer
from .programs.predictor import predictor as predictor
from .programs.program import MemoryProgram as MemoryProgram
from .records import Action as Action
from .records import Behavior as Behavior
from .records import Context as Context
from .records import History as History
from .records import Hit as Hit
from .records import Item as Item
from .records import Logs as Logs
from .records import Profile as Profile
from .records import Query as Query
from .records import Session as Session
from .records import Turn as Turn
from .runs.artifact import load as load
from .runs.artifact import save as save
from .runs.experiment import evaluate as evaluate
from .serving.client import AsyncClient as AsyncClient
from .serving.client import Client as Client
from .serving.prompt_text import memory_tool as memory_tool
from .serving.user_memory import UserMemory as UserMemory

__version__: str
